#pragma once

#include <cstdint>
#include <vector>

#include "ndmesh/base/memory_category.h"
#include "ndmesh/job/job.h"

namespace ndmesh::plan {

/// What one rank is predicted to hold at most, by category: each category's own peak over a step in steady
/// state (optimizer state present), not the sum at one instant.
struct MemoryBudget {
  std::int64_t rank = 0;
  MemoryBytes bytes;
  std::int64_t host_bytes = 0;  ///< offloaded states and activations
};

/// Budgets of every rank of the job's mesh under ndmesh's own runtime: MemoryModel for the job as it is.
/// `job` and `model` have passed job::check_trainable.
std::vector<MemoryBudget> predict_memory(const job::Job& job, const model::ModelSpec& model);

/// By layer, whether its forward runs again in backward, under recompute.policy full, every and budget: for a budget as
/// many of each pipeline rank's first blocks as MemoryModel finds it takes; `every` counts by pipeline rank too.
std::vector<bool> recomputed_layers(const job::Job& job, const model::ModelSpec& model);

/// The budget with the largest total; the first of equals. `budgets` is not empty.
const MemoryBudget& worst(const std::vector<MemoryBudget>& budgets);

}  // namespace ndmesh::plan
