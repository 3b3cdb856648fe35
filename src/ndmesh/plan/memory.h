#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ndmesh/base/memory_category.h"
#include "ndmesh/job/job.h"

namespace ndmesh::plan {

/// What one rank is predicted to hold at most, by category: each category's own peak over a step in steady state (optimizer
/// state present), not the sum at one instant. The only memory model there is.
struct MemoryBudget {
  std::int64_t rank = 0;
  MemoryBytes bytes;
};

/// Budgets of every rank of the job's mesh, for replicated and fully sharded data parallelism.
std::vector<MemoryBudget> predict_memory(const job::Job& job, const model::ModelSpec& model);

/// The rank with the largest total; the first of equals.
const MemoryBudget& worst(const std::vector<MemoryBudget>& budgets);

/// One line of the activation budget: what a layer keeps for its backward.
struct SavedTensor {
  std::string what;
  std::int64_t bytes = 0;
};
/// What one decoder block keeps for backward for `tokens` tokens of one micro-batch (`sequences` sequences), and what the
/// ends of the model keep.
std::vector<SavedTensor> saved_by_block(const model::ModelSpec& model, std::int64_t tokens, DType dtype);
std::vector<SavedTensor> saved_by_ends(const model::ModelSpec& model, std::int64_t tokens, DType dtype);

}  // namespace ndmesh::plan
