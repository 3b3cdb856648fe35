#include "ndmesh/model/config.h"

namespace ndmesh::model {
namespace {

/// Elements that a token meets in a matrix product. The head counts also when it is the input table's second
/// use.
double matmul_parameters(const ModelSpec& spec) {
  double count = static_cast<double>(spec.vocab) * static_cast<double>(spec.hidden);
  for (const ParameterSpec& parameter : spec.parameters()) {
    const bool table = parameter.role == Role::embedding || parameter.role == Role::head;
    if (!table && parameter.shape.size() == 2) {
      count += static_cast<double>(parameter.elements());
    }
  }
  return count;
}

}  // namespace

FlopsPerToken flops_per_token(const ModelSpec& spec, std::int64_t seq_len) {
  const double width = static_cast<double>(spec.heads) * static_cast<double>(spec.head_dim);
  return {.weights = 6 * matmul_parameters(spec),
          .attention = 6 * static_cast<double>(spec.layers) * width * static_cast<double>(seq_len)};
}

}  // namespace ndmesh::model
