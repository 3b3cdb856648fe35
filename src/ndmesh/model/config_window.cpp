#include <fmt/format.h>

#include <algorithm>

#include "ndmesh/model/config_parts.h"

namespace ndmesh::model {
namespace {

using Window = Family::Window;

/// By layer whether it is windowed, as `layer_types` says; none with a wrong list.
std::vector<bool> listed_layers(ConfigParts& config) {
  const nlohmann::json& types = config.root["layer_types"];
  const std::int64_t layers = config.spec.layers;
  if (!types.is_array() || static_cast<std::int64_t>(types.size()) != layers) {
    config.keys.refuse("layer_types", fmt::format("a list of {} names, one a layer", layers));
    return {};
  }
  std::vector<bool> windowed;
  for (const nlohmann::json& type : types) {
    if (type != "full_attention" && type != "sliding_attention") {
      config.keys.problem("layer_types", "allowed: full_attention, sliding_attention");
      return {};
    }
    windowed.push_back(type == "sliding_attention");
  }
  return windowed;
}

/// The same where no list says so.
std::vector<bool> usual_layers(ConfigParts& config) {
  const auto layers = static_cast<std::size_t>(config.spec.layers);
  std::vector<bool> windowed(layers, true);
  if (config.family.window == Window::from_layer) {
    const std::int64_t first = config.keys.integer("max_window_layers", 28, {0, positions_range.most});
    std::fill_n(windowed.begin(), std::min(first, config.spec.layers), false);
  }
  if (config.family.window == Window::alternating) {
    const std::int64_t usual = config.family.window_period;
    const bool reads_period = usual > 2;  // gemma3 has a key for it
    const std::int64_t period =
        reads_period ? config.keys.integer("sliding_window_pattern", usual, layers_range) : usual;
    for (std::size_t layer = 0; layer < layers; ++layer) {
      windowed[layer] = (static_cast<std::int64_t>(layer) + 1) % period != 0;
    }
  }
  return windowed;
}

/// The window that is in force, if any.
std::optional<std::int64_t> window_in_force(ConfigParts& config) {
  std::optional<std::int64_t> window = config.keys.optional_integer("sliding_window", positions_range);
  if (!config.keys.present("sliding_window")) {
    window = config.family.sliding_window;
  }
  if (config.family.window_switch && !config.keys.boolean("use_sliding_window", false)) {
    window.reset();
  }
  return window;
}

}  // namespace

void read_windows(ConfigParts& config) {
  if (config.family.window == Window::none) {
    return;
  }
  const std::optional<std::int64_t> window = window_in_force(config);
  const std::vector<bool> usual = usual_layers(config);
  const bool listed = config.keys.has("layer_types");
  const std::vector<bool> windowed = listed ? listed_layers(config) : usual;
  const auto count = std::count(windowed.begin(), windowed.end(), true);
  if (listed && count > 0 && !window) {
    return config.keys.problem("layer_types", "has sliding_attention, but no sliding window is in force");
  }
  const bool every = config.family.window == Window::every;
  if (every && listed && window && count != config.spec.layers) {
    return config.keys.problem(
        "layer_types",
        fmt::format("has full_attention, but {} uses sliding_window in every layer", config.family.name));
  }
  if (!window && config.family.rope_local_theta && count > 0) {
    return config.keys.problem("sliding_window",
                               "is null, but layers have sliding_attention; allowed: a number of tokens");
  }
  if (!window || count == 0) {
    return;
  }
  config.spec.sliding_window = window;
  if (count != config.spec.layers) {
    config.spec.windowed = windowed;
  }
}

}  // namespace ndmesh::model
