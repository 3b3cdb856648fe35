#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "ndmesh/cli/validation_text.h"
#include "ndmesh/plan/measured/calibration.h"

namespace ndmesh::cli {
namespace {

using plan::Accuracy;

constexpr std::string_view introduction =
    "# Accuracy of the planner\n\n"
    "Predictions of `ndmesh` beside measurements that other people took and published. This page is written "
    "by\n"
    "`ndmesh validate CSV --page FILE`; the same command judges any other table of the same form. What the "
    "columns mean,\n"
    "which rows are left out and what the errors come from is in [validation.md](validation.md).\n\n"
    "- *Memory*: mean absolute error of the peak, of the kind and on the rank that was measured.\n"
    "- *Verdicts*: rows that ran or ended out of memory, and how many of them the plan tells right.\n"
    "- *Time*: mean absolute error of a step, with the committed constants and with constants fitted to the "
    "cluster: to\n"
    "  half of its rows, at most {}, chosen by what they ran and never by what was measured. Rows that were "
    "fitted to are\n"
    "  not scored in either column.\n"
    "- *tau*, *regret*: within rows of one cluster, model, number of devices, batch and sequence, 3 or more: "
    "Kendall's\n"
    "  tau-b between predicted and measured times, and how much slower the layout that the plan picks is "
    "than the best.\n"
    "  Calibrated, weighed by rows, with the interval that holds nine of ten bootstrap samples of the "
    "groups.\n\n"
    "Splits are by source, by cluster and by kind of model, never at random.\n";

std::string number(const std::optional<double>& value, int digits = 1) {
  return value ? fmt::format("{:.{}f}", *value, digits) : "";
}

std::string interval(const std::optional<plan::WeightedMean>& mean, int digits) {
  if (!mean) return "";
  return fmt::format("{:.{}f} ({:.{}f} to {:.{}f})", mean->value, digits, mean->low, digits, mean->high,
                     digits);
}

std::string verdicts(const Accuracy& part) {
  if (part.verdict_rows == 0) return "";
  return fmt::format("{} of {}", part.verdict_right, part.verdict_rows);
}

std::string signed_number(const std::optional<double>& value) {
  return value ? fmt::format("{:+.1f}", *value) : "";
}

std::string part_line(const Accuracy& part) {
  return fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |\n", part.name,
                     part.memory_rows > 0 ? std::to_string(part.memory_rows) : "", number(part.memory_mape),
                     signed_number(part.memory_bias), verdicts(part),
                     part.time_rows > 0 ? std::to_string(part.time_rows) : "", number(part.mape_uncalibrated),
                     number(part.mape_calibrated), signed_number(part.bias_calibrated), interval(part.tau, 2),
                     interval(part.regret, 1));
}

std::string parts_table(const std::string& title, const std::vector<Accuracy>& parts) {
  std::string text = fmt::format(
      "\n## {}\n\n| | memory rows | error % | bias % | verdicts | time rows | error % | calibrated % | bias "
      "% | tau | "
      "regret % |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
      title);
  for (const Accuracy& part : parts) text += part_line(part);
  return text;
}

/// Clusters and kinds of models that were timed.
std::vector<Accuracy> timed(const std::vector<Accuracy>& parts) {
  std::vector<Accuracy> result;
  std::copy_if(parts.begin(), parts.end(), std::back_inserter(result),
               [](const Accuracy& part) { return part.time_rows > 0; });
  return result;
}

struct Residual {
  std::string id;
  std::string group;
  std::string mesh;
  double percent = 0;
};

/// The rows that are furthest off, one part of them a table.
std::string residuals_table(const std::string& title, std::vector<Residual> residuals) {
  constexpr std::size_t shown = 15;
  const auto further = [](const Residual& a, const Residual& b) {
    return std::abs(a.percent) > std::abs(b.percent);
  };
  std::stable_sort(residuals.begin(), residuals.end(), further);
  residuals.resize(std::min(residuals.size(), shown));
  std::string text = fmt::format("\n### {}\n\n| row | group | mesh | error % |\n|---|---|---|--:|\n", title);
  for (const Residual& row : residuals) {
    text += fmt::format("| {} | {} | {} | {:+.1f} |\n", row.id, row.group, row.mesh, row.percent);
  }
  return text;
}

std::string furthest_off(const plan::Validation& validation) {
  std::vector<Residual> memory;
  std::vector<Residual> time;
  for (std::size_t i = 0; i < validation.predictions.size(); ++i) {
    const plan::Measurement& row = validation.measurements.list[i];
    const plan::Prediction& prediction = validation.predictions[i];
    const Residual residual{row.id, row.group, row.candidate.mesh.name(), 0};
    const auto add = [&](std::vector<Residual>& list, double ratio) {
      list.push_back(residual);
      list.back().percent = 100 * (ratio - 1);
    };
    if (row.memory && prediction.bytes) {
      add(memory, static_cast<double>(*prediction.bytes) / static_cast<double>(row.memory->bytes));
    }
    if (row.seconds && !prediction.calibrates) add(time, prediction.calibrated / *row.seconds);
  }
  std::string text = "\n## Furthest off\n";
  if (!memory.empty()) text += residuals_table("Memory", std::move(memory));
  if (!time.empty()) text += residuals_table("Time, calibrated", std::move(time));
  return text;
}

std::string left_out(const plan::Measurements& measurements) {
  std::map<std::pair<std::string, std::string>, std::int64_t> counts;
  for (const plan::LeftOut& row : measurements.left_out) ++counts[{row.part, row.reason}];
  std::string text = "\n## Left out\n\n| rows | of what | why |\n|--:|---|---|\n";
  for (const auto& [key, count] : counts) {
    text +=
        fmt::format("| {} | {} | {} |\n", count, key.first.empty() ? "everything" : key.first, key.second);
  }
  return text;
}

}  // namespace

std::string validation_page(const plan::Validation& validation) {
  std::string text = fmt::format(introduction, plan::most_calibration_rows);
  text += fmt::format("\n`{}`: {} rows, {} judged.\n",
                      std::filesystem::path(validation.source).filename().string(),
                      validation.measurements.rows, validation.all.rows);
  std::vector<Accuracy> groups = validation.groups;
  groups.push_back(validation.all);
  text += parts_table("By source", groups);
  text += parts_table("By cluster", timed(validation.clusters));
  text += parts_table("By kind of model", validation.models);
  text += furthest_off(validation);
  if (!validation.measurements.left_out.empty()) text += left_out(validation.measurements);
  return text;
}

}  // namespace ndmesh::cli
