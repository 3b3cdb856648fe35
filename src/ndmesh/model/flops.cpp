#include <algorithm>

#include "ndmesh/model/config.h"
#include "ndmesh/model/inventory.h"

namespace ndmesh::model {
namespace {

/// Elements of a parameter that one token meets in a matrix product.
double met_elements(const LayerParameter& parameter, const ModelSpec& spec) {
  const ParameterSpec& p = parameter.spec;
  const bool product = !p.bias && p.shape.size() >= 2;
  const auto elements = product ? static_cast<double>(parameter.elements()) : 0;
  return is_expert(p.role) ? elements * static_cast<double>(spec.experts->per_token) /
                                 static_cast<double>(spec.experts->count)
                           : elements;
}

/// Of all layers, of the head where it is used, and what an estimated model has beyond its shape.
double matmul_parameters(const ModelSpec& spec) {
  const auto head = static_cast<double>(spec.vocab) * static_cast<double>(spec.hidden);
  double count =
      head * static_cast<double>(1 + spec.mtp_layers) + static_cast<double>(spec.unspecified_parameters);
  for (const LayerParameter& parameter : counted_inventory(spec)) {
    count += parameter.spec.layer >= 0 ? met_elements(parameter, spec) : 0;
  }
  return count;
}

/// Tokens that one token sees in a layer, twice their mean over a sequence: as many as there are without a
/// window.
double seen_twice(const ModelSpec& spec, std::int64_t layer, std::int64_t seq_len) {
  const auto length = static_cast<double>(seq_len);
  if (!spec.is_windowed(layer)) {
    return length;
  }
  const double window = std::min(static_cast<double>(*spec.sliding_window), length);
  return 2 * window - window * window / length;
}

}  // namespace

FlopsPerToken layer_flops_per_token(const ModelSpec& spec, std::int64_t layer, std::int64_t seq_len) {
  double met = 0;
  for (const LayerParameter& parameter : spec.layer_parameters(layer)) {
    met += met_elements(parameter, spec);
  }
  return {.weights = 6 * met,
          .attention = 3 * static_cast<double>(spec.query_width() + spec.value_width()) *
                       seen_twice(spec, layer, seq_len)};
}

double head_flops_per_token(const ModelSpec& spec) {
  return 6 * static_cast<double>(spec.vocab) * static_cast<double>(spec.hidden);
}

FlopsPerToken flops_per_token(const ModelSpec& spec, std::int64_t seq_len) {
  double seen = 0;
  for (std::int64_t layer = 0; layer < spec.total_layers(); ++layer) {
    seen += seen_twice(spec, layer, seq_len);
  }
  return {.weights = 6 * matmul_parameters(spec),
          .attention = 3 * static_cast<double>(spec.query_width() + spec.value_width()) * seen};
}

}  // namespace ndmesh::model
