#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ndmesh/base/memory_category.h"
#include "ndmesh/job/job.h"

namespace ndmesh::plan {

/// What one rank is predicted to hold at most, by category: each category's own peak over a step in steady
/// state (optimizer state present), not the sum at one instant.
struct MemoryBudget {
  std::int64_t rank = 0;
  MemoryBytes bytes;
};

/// Budgets of every rank of the job's mesh under ndmesh's own runtime, for replicated and fully sharded data
/// parallelism. The only memory model there is. `job` and `model` have passed job::check_trainable.
std::vector<MemoryBudget> predict_memory(const job::Job& job, const model::ModelSpec& model);

/// The budget with the largest total; the first of equals. `budgets` is not empty.
const MemoryBudget& worst(const std::vector<MemoryBudget>& budgets);

/// One line of the activation budget.
struct SavedTensor {
  std::string what;
  std::int64_t bytes = 0;
};

/// Tokens of one micro-batch: what one forward on one rank works on.
struct MicroBatchShape {
  std::int64_t sequences = 1;
  std::int64_t seq_len = 1;
  std::int64_t tokens() const { return sequences * seq_len; }
};

/// What one decoder block keeps for its backward, tensor by tensor.
std::vector<SavedTensor> saved_by_block(const model::ModelSpec& model, const MicroBatchShape& shape,
                                        DType dtype);
/// What lies before the first and behind the last block.
std::vector<SavedTensor> saved_by_ends(const model::ModelSpec& model, const MicroBatchShape& shape,
                                       DType dtype);
std::int64_t total(const std::vector<SavedTensor>& saved);

}  // namespace ndmesh::plan
