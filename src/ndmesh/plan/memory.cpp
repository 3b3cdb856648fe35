#include "ndmesh/plan/memory.h"

#include <algorithm>

#include "ndmesh/plan/memory/memory_states.h"
#include "ndmesh/plan/memory/training_memory.h"
#include "ndmesh/plan/stage_cut.h"
#include "ndmesh/plan/time/recompute_time.h"

namespace ndmesh::plan {
namespace {

Problem problem_of(const job::Job& job, const model::ModelSpec& model) {
  Problem problem;
  problem.model = model;
  problem.profile = profile("ndmesh");
  problem.profile.memory.unit_blocks = job.shard.unit_blocks;
  problem.profile.memory.gathered_units = 1 + job.shard.prefetch;
  problem.profile.memory.gathered_limit = job.shard.gathered_limit;
  problem.seq_len = job.batch.seq_len;
  problem.global_batch = job.batch.global;
  problem.precision.compute = job.dtype;
  problem.precision.bf16_states = job.precision.bf16_states;
  problem.optimizer = job.optimizer.name;
  problem.momentum = job.optimizer.momentum > 0;
  problem.frozen = job.train.frozen;
  problem.loss_chunk = job.train.loss_chunk;
  problem.layers = job.pipeline.layers;
  problem.list = pipeline_list(job.pipeline);
  return problem;
}

Candidate candidate_of(const job::Job& job) {
  Candidate candidate;
  candidate.mesh = job.mesh;
  candidate.order = job.mesh_order;
  candidate.micro = job.batch.micro;
  candidate.schedule = job.pipeline.schedule;
  candidate.chunks = job::pipeline_shape(job).chunks;
  candidate.zero = job.shard.zero;
  candidate.reshard = job.shard.reshard;
  candidate.recompute = job.recompute;
  candidate.offload = job.shard.offload;
  candidate.offload_activations = job.offload_activations;
  candidate.sequence_parallel = job.tensor.sequence_parallel;
  return candidate;
}

/// What some layers do not train.
void take_off(MemoryBudget& budget, const UnitBytes& surplus) {
  budget.bytes[MemoryCategory::parameters] -= surplus.parameters;
  budget.bytes[MemoryCategory::master_weights] -= surplus.master_weights;
  budget.bytes[MemoryCategory::gradients] -= surplus.gradients;
  budget.bytes[MemoryCategory::optimizer] -= surplus.optimizer;
  budget.host_bytes -= surplus.host;
}

/// Of a pipeline rank, chunk by chunk.
std::vector<std::int64_t> layers_of(const Problem& problem, const Candidate& candidate,
                                    const std::vector<layout::Range>& cut, std::int64_t rank) {
  const schedule::Shape shape = schedule_shape(problem, candidate);
  std::vector<std::int64_t> layers;
  for (std::int64_t chunk = 0; chunk < shape.chunks; ++chunk) {
    const layout::Range range = cut[static_cast<std::size_t>(shape.stage_of(rank, chunk))];
    for (std::int64_t layer = range.start; layer < range.start + range.size; ++layer) {
      layers.push_back(layer);
    }
  }
  return layers;
}

UnitBytes surplus_of(const Problem& problem, const Candidate& candidate,
                     const std::vector<layout::Range>& cut, std::int64_t rank) {
  const mesh::Mesh mesh(candidate.mesh, candidate.order);
  Sharing sharing = sharing_of(candidate);
  sharing.index = mesh.index_in(rank, mesh::shard_axes);
  const std::int64_t stage = mesh.coordinate(rank, mesh::Axis::pp);
  return surplus_of_frozen_layers(problem, parts_of(problem, candidate.mesh), sharing,
                                  layers_of(problem, candidate, cut, stage));
}

}  // namespace

std::vector<layout::Range> stage_cut(const job::Job& job, const model::ModelSpec& model) {
  const Problem problem = problem_of(job, model);
  return MemoryModel(problem).stages(candidate_of(job));
}

std::vector<MemoryBudget> predict_memory(const job::Job& job, const model::ModelSpec& model) {
  const Problem problem = problem_of(job, model);
  const Candidate candidate = candidate_of(job);
  const MemoryModel memory(problem);
  std::vector<MemoryBudget> budgets;
  for (std::int64_t rank = 0; rank < candidate.mesh.world(); ++rank) {
    const StageBudget budget = memory.budget_of(candidate, rank);
    budgets.push_back({rank, budget.peaks, budget.host_bytes});
    take_off(budgets.back(), surplus_of(problem, candidate, memory.stages(candidate), rank));
  }
  return budgets;
}

std::vector<bool> recomputed_layers(const job::Job& job, const model::ModelSpec& model) {
  using Policy = job::Recompute::Policy;
  std::vector<bool> again(static_cast<std::size_t>(model.layers), job.recompute.policy == Policy::full);
  if (job.recompute.policy != Policy::every && job.recompute.policy != Policy::budget) {
    return again;
  }
  const Problem problem = problem_of(job, model);
  const Candidate candidate = candidate_of(job);
  const std::vector<layout::Range> cut = MemoryModel(problem).stages(candidate);
  const std::vector<RecomputedBlocks> blocks = recomputed_blocks(problem, candidate, cut);
  const bool every = job.recompute.policy == Policy::every;
  for (std::int64_t rank = 0; rank < candidate.mesh.pp; ++rank) {
    const std::vector<std::int64_t> layers = layers_of(problem, candidate, cut, rank);
    const std::int64_t step = every ? job.recompute.layers : 1;
    for (std::int64_t i = 0; i < blocks[static_cast<std::size_t>(rank)].recomputed; ++i) {
      again[static_cast<std::size_t>(layers[static_cast<std::size_t>(i * step)])] = true;
    }
  }
  return again;
}

const MemoryBudget& worst(const std::vector<MemoryBudget>& budgets) {
  return *std::max_element(budgets.begin(), budgets.end(), [](const MemoryBudget& a, const MemoryBudget& b) {
    return a.bytes.total() < b.bytes.total();
  });
}

}  // namespace ndmesh::plan
