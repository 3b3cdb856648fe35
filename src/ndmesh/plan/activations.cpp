#include <algorithm>
#include <numeric>

#include "ndmesh/plan/memory.h"
#include "ndmesh/plan/sizes.h"

namespace ndmesh::plan {

std::vector<SavedTensor> saved_by_block(const model::ModelSpec& model, const MicroBatchShape& shape,
                                        DType dtype) {
  const std::int64_t tokens = shape.tokens();
  const auto saved = [&](std::int64_t width) { return rounded(tokens * width * bytes_of(dtype)); };
  const auto statistic = [&](std::int64_t width) { return rounded(tokens * width * bytes_of(wide(dtype))); };
  const std::int64_t queries = model.heads * model.head_dim;
  const std::int64_t keys = model.kv_heads * model.head_dim;
  std::vector<SavedTensor> list = {
      {"block input", saved(model.hidden)},
      {"its inverse root mean squares", statistic(1)},
      {"normed input, read by q, k and v", saved(model.hidden)},
      {"rotated queries", saved(queries)},
      {"rotated keys", saved(keys)},
      {"values", saved(keys)},
      {"attention output", saved(queries)},
      {"attention log-sum-exp", statistic(model.heads)},
      {"sum after attention", saved(model.hidden)},
      {"its inverse root mean squares", statistic(1)},
      {"normed sum, read by gate and up", saved(model.hidden)},
      {"gate", saved(model.ffn)},
      {"up", saved(model.ffn)},
      {"silu(gate) * up, read by down", saved(model.ffn)},
  };
  if (model.qk_norm) {
    list.push_back({"queries before their norm", saved(queries)});
    list.push_back({"keys before their norm", saved(keys)});
    list.push_back(
        {"inverse root mean squares of heads", statistic(model.heads) + statistic(model.kv_heads)});
  }
  return list;
}

std::vector<SavedTensor> saved_by_ends(const model::ModelSpec& model, const MicroBatchShape& shape,
                                       DType dtype) {
  const std::int64_t tokens = shape.tokens();
  const std::int64_t hidden = rounded(tokens * model.hidden * bytes_of(dtype));
  return {
      {"output of the last block", hidden},
      {"its inverse root mean squares", rounded(tokens * bytes_of(wide(dtype)))},
      {"normed output, read by the head", hidden},
      {"gradient of the normed output", hidden},
  };
}

std::int64_t total(const std::vector<SavedTensor>& saved) {
  return std::accumulate(saved.begin(), saved.end(), std::int64_t{0},
                         [](std::int64_t sum, const SavedTensor& tensor) { return sum + tensor.bytes; });
}

}  // namespace ndmesh::plan
