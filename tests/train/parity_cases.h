#pragma once

#include <string>
#include <vector>

#include "ndmesh/base/dtype.h"

namespace ndmesh::test {

/// One row of the parity grid: `variant` (train/models.h) trained on `mesh` equals the same on one rank.
struct ParityCase {
  std::string variant;
  std::string mesh;
  std::int64_t global;
  std::int64_t micro;
  DType dtype = DType::float64;
};

/// Run at every test.
inline const std::vector<ParityCase> fast_cases = {
    {"tiny", "dp_replicate=2", 12, 3},
    {"tiny", "dp_shard=2", 12, 1},
    {"tied", "dp_shard=3", 12, 2},
    {"qwen2", "dp_shard=2,dp_replicate=2", 12, 1},
    {"qwen3", "dp_shard=2", 12, 2},
    {"tiny", "dp_shard=2", 12, 2, DType::float32},
    {"tiny", "dp_shard=2", 12, 2, DType::bfloat16},
};

/// Every strategy on every variant: world sizes 2 to 5, with and without accumulation.
inline std::vector<ParityCase> full_grid() {
  std::vector<ParityCase> cases;
  for (const char* variant : {"tiny", "tied", "qwen2", "qwen3"}) {
    for (const char* mesh : {"dp_replicate=2", "dp_replicate=3", "dp_replicate=5", "dp_shard=2", "dp_shard=3",
                             "dp_shard=4", "dp_shard=5", "dp_shard=2,dp_replicate=2"}) {
      cases.push_back({variant, mesh, 60, 1});
      cases.push_back({variant, mesh, 180, 3});
    }
    for (const char* mesh : {"dp_replicate=2", "dp_shard=3", "dp_shard=2,dp_replicate=2"}) {
      cases.push_back({variant, mesh, 12, 1, DType::float32});
      cases.push_back({variant, mesh, 12, 1, DType::bfloat16});
    }
  }
  return cases;
}

}  // namespace ndmesh::test
