#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "ndmesh/base/error.h"
#include "ndmesh/base/text.h"
#include "ndmesh/model/config.h"

namespace ndmesh::model {
namespace {

constexpr double least_size = 1e6;
constexpr double most_size = 1e15;
constexpr std::int64_t most_layers = 1 << 14;

/// Of Llama 3's models, 8B to 405B, within a quarter.
constexpr double hidden_per_layer = 112;
constexpr double ffn_per_hidden = 3.5;

/// "70B" -> 70e9, "405e9"; nothing for what is no number with such a unit.
std::optional<double> size_of(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !std::isfinite(number)) {
    return std::nullopt;
  }
  const std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  constexpr auto units = std::to_array<std::pair<std::string_view, double>>(
      {{"", 1}, {"M", 1e6}, {"m", 1e6}, {"B", 1e9}, {"b", 1e9}, {"T", 1e12}, {"t", 1e12}});
  for (const auto& [name, factor] : units) {
    if (unit == name) {
      return number * factor;
    }
  }
  return std::nullopt;
}

std::int64_t vocabulary_of(std::int64_t parameters) {
  if (parameters < 10'000'000) return 256;
  if (parameters < 100'000'000) return 4096;
  return parameters < 3'000'000'000 ? 32000 : 128256;
}

/// Layers that divide well over stages.
std::int64_t rounded_layers(double layers) {
  const double step = layers < 16 ? 1 : layers < 64 ? 4 : 8;
  return std::max<std::int64_t>(1, std::llround(layers / step) * static_cast<std::int64_t>(step));
}

/// The shape of a given width: about ffn_per_hidden, made wider or narrower so that whole layers come near
/// the size from below. Nothing where the width is far too large or too small.
std::optional<ModelSpec> shape_of_width(std::int64_t hidden, std::int64_t parameters) {
  ModelSpec spec;
  spec.family = "estimate";
  spec.vocab = vocabulary_of(parameters);
  spec.hidden = hidden;
  spec.head_dim = hidden < 1024 ? 64 : 128;
  spec.heads = hidden / spec.head_dim;
  spec.kv_heads = std::gcd(spec.heads, std::int64_t{8});
  spec.max_positions = 131072;

  const std::int64_t attention = 2 * hidden * (spec.heads + spec.kv_heads) * spec.head_dim + 2 * hidden;
  const std::int64_t in_layers = parameters - (2 * spec.vocab + 1) * hidden;
  const auto width = static_cast<double>(hidden);
  const double usual_layer = static_cast<double>(attention) + 3 * ffn_per_hidden * width * width;
  spec.layers = rounded_layers(static_cast<double>(in_layers) / usual_layer);
  if (spec.layers > most_layers) {
    return std::nullopt;
  }
  const std::int64_t step = hidden < 1024 ? 16 : 128;
  spec.ffn = (in_layers - spec.layers * attention) / (3 * hidden * spec.layers) / step * step;
  if (in_layers <= spec.layers * attention || spec.ffn < hidden) {
    return std::nullopt;
  }
  spec.unspecified_parameters = parameters - spec.parameter_count();
  return spec;
}

/// How far the shape is from the usual number of layers for its width.
double oddness(const ModelSpec& spec) {
  const double usual = static_cast<double>(spec.hidden) / hidden_per_layer;
  return std::abs(std::log(static_cast<double>(spec.layers) / usual));
}

}  // namespace

bool is_size(std::string_view text) {
  return size_of(text).has_value();
}

ModelSpec estimate(const std::string& size) {
  const std::optional<double> number = size_of(size);
  if (!number || *number < least_size || *number > most_size) {
    throw RequestError(
        "model size " + shown(size) +
        ": allowed are 1M to 1000T, as \"1.5B\", \"70B\" or \"405e9\" (M 10^6, B 10^9, T 10^12)");
  }
  const std::int64_t parameters = std::llround(*number);
  std::optional<ModelSpec> best;
  for (std::int64_t power = 128; power <= 1 << 19; power *= 2) {
    for (const std::int64_t hidden : {power, power + power / 2}) {
      const std::optional<ModelSpec> spec = shape_of_width(hidden, parameters);
      if (spec && (!best || oddness(*spec) < oddness(*best))) {
        best = spec;
      }
    }
  }
  return best.value();
}

}  // namespace ndmesh::model
