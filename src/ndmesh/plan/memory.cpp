#include "ndmesh/plan/memory.h"

#include <algorithm>

#include "ndmesh/plan/memory/training_memory.h"

namespace ndmesh::plan {
namespace {

Problem problem_of(const job::Job& job, const model::ModelSpec& model) {
  Problem problem;
  problem.model = model;
  problem.profile = profile("ndmesh");
  problem.profile.memory.gathered_blocks = 1 + job.shard.prefetch;
  problem.seq_len = job.batch.seq_len;
  problem.global_batch = job.batch.global;
  problem.precision.compute = job.dtype;
  problem.optimizer = job.optimizer.name;
  problem.loss_chunk = job.train.loss_chunk;
  return problem;
}

Candidate candidate_of(const job::Job& job) {
  Candidate candidate;
  candidate.mesh = job.mesh;
  candidate.order = job.mesh_order;
  candidate.micro = job.batch.micro;
  candidate.zero = job.shard.zero;
  candidate.reshard = job.shard.reshard;
  return candidate;
}

}  // namespace

std::vector<MemoryBudget> predict_memory(const job::Job& job, const model::ModelSpec& model) {
  const Problem problem = problem_of(job, model);
  const Candidate candidate = candidate_of(job);
  const MemoryModel memory(problem);
  std::vector<MemoryBudget> budgets;
  for (std::int64_t rank = 0; rank < candidate.mesh.world(); ++rank) {
    budgets.push_back({rank, memory.budget_of(candidate, rank).peaks});
  }
  return budgets;
}

const MemoryBudget& worst(const std::vector<MemoryBudget>& budgets) {
  return *std::max_element(budgets.begin(), budgets.end(), [](const MemoryBudget& a, const MemoryBudget& b) {
    return a.bytes.total() < b.bytes.total();
  });
}

}  // namespace ndmesh::plan
