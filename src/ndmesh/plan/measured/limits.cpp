#include "ndmesh/plan/measured/limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "ndmesh/base/error.h"
#include "ndmesh/base/nearest.h"
#include "ndmesh/base/text.h"

namespace ndmesh::plan {
namespace {

struct Figure {
  std::string_view name;
  bool at_least;
  std::optional<double> (*of)(const Accuracy& accuracy);
};

std::optional<double> value_of(const std::optional<WeightedMean>& mean) {
  if (!mean) return std::nullopt;
  return mean->value;
}

std::optional<double> percent_right(const Accuracy& accuracy) {
  if (accuracy.verdict_rows == 0) return std::nullopt;
  return 100 * static_cast<double>(accuracy.verdict_right) / static_cast<double>(accuracy.verdict_rows);
}

constexpr std::array figures = {
    Figure{"memory_mape", false, [](const Accuracy& a) { return a.memory_mape; }},
    Figure{"verdict", true, percent_right},
    Figure{"mape_uncalibrated", false, [](const Accuracy& a) { return a.mape_uncalibrated; }},
    Figure{"mape_calibrated", false, [](const Accuracy& a) { return a.mape_calibrated; }},
    Figure{"tau", true, [](const Accuracy& a) { return value_of(a.tau); }},
    Figure{"regret", false, [](const Accuracy& a) { return value_of(a.regret); }},
};

const Figure& figure_of(const std::string& name) {
  return *std::find_if(figures.begin(), figures.end(),
                       [&](const Figure& figure) { return figure.name == name; });
}

const Accuracy& part_of(const std::string& group, const Accuracy& all, const std::vector<Accuracy>& groups) {
  if (group.empty()) return all;
  std::vector<std::string> names;
  for (const Accuracy& part : groups) {
    if (part.name == group) return part;
    names.push_back(part.name);
  }
  throw RequestError(fmt::format("--limit names the group {}{}; groups: {}", shown(group),
                                 did_you_mean(group, names), join(names)));
}

}  // namespace

std::vector<std::string> limit_figures() {
  std::vector<std::string> names;
  for (const Figure& figure : figures) names.emplace_back(figure.name);
  return names;
}

Limit parse_limit(std::string_view text) {
  const std::size_t equals = text.rfind('=');
  const std::string_view left = text.substr(0, equals);
  const std::size_t colon = left.rfind(':');
  Limit limit;
  if (colon != std::string_view::npos) limit.group = left.substr(0, colon);
  limit.figure = colon == std::string_view::npos ? left : left.substr(colon + 1);
  const std::vector<std::string> names = limit_figures();
  if (std::find(names.begin(), names.end(), limit.figure) == names.end()) {
    throw RequestError(fmt::format("--limit names the figure {}{}; allowed: [GROUP:]FIGURE=NUMBER with {}",
                                   shown(limit.figure), did_you_mean(limit.figure, names), join(names)));
  }
  const std::string_view number = equals == std::string_view::npos ? "" : text.substr(equals + 1);
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), limit.value);
  if (error != std::errc() || end != number.data() + number.size() || !std::isfinite(limit.value)) {
    throw RequestError(fmt::format("--limit {} is {}; allowed: a number", limit.figure, shown(number)));
  }
  return limit;
}

std::vector<std::string> broken_limits(const std::vector<Limit>& limits, const Accuracy& all,
                                       const std::vector<Accuracy>& groups) {
  std::vector<std::string> broken;
  for (const Limit& limit : limits) {
    const Figure& figure = figure_of(limit.figure);
    const std::optional<double> value = figure.of(part_of(limit.group, all, groups));
    const bool held = value && (figure.at_least ? *value >= limit.value : *value <= limit.value);
    if (held) continue;
    broken.push_back(fmt::format("{}{} is {}; limit: at {} {:g}",
                                 limit.group.empty() ? "" : limit.group + ":", limit.figure,
                                 value ? fmt::format("{:.3g}", *value) : "not measured by any row",
                                 figure.at_least ? "least" : "most", limit.value));
  }
  return broken;
}

}  // namespace ndmesh::plan
