#include "ndmesh/plan/memory/training_memory.h"

#include <algorithm>

#include "ndmesh/plan/memory/direct_mapped.h"
#include "ndmesh/plan/memory/stage_memory.h"

namespace ndmesh::plan {
namespace {

/// More distinct (tp, cp, ...) than a search has in its inner loops.
constexpr std::size_t places = 512;

/// The caching allocator keeps what is freed in pieces of the size that was asked for, and what one instant
/// frees rarely fits what the next one asks for: each category's own peak stays reserved, and what comes and
/// goes in many sizes leaves gaps. States are allocated once, and each tensor of logits has a segment to
/// itself.
std::int64_t reserved_bytes(const MemoryProfile& profile, const MemoryBytes& peaks, std::int64_t outside) {
  const std::int64_t whole = states_of(peaks) + peaks[MemoryCategory::logits];
  const auto moving = static_cast<double>(peaks.total() - whole);
  return whole + static_cast<std::int64_t>(moving * (1 + profile.fragmentation)) + outside;
}

}  // namespace

class MemoryModel::State {
 public:
  explicit State(const Problem& problem) : problem_(problem), counter_(problem) {}

  StageBudget budget(const Candidate& candidate, std::int64_t stage, std::int64_t shard_index) {
    const Moments moments = moments_of(candidate, stage, shard_index);
    StageBudget budget;
    budget.stage = stage;
    budget.at_peak = moments.largest();
    budget.peaks = moments.peaks();
    budget.outside = outside(candidate);
    budget.reserved = reserved_bytes(problem_.profile.memory, budget.peaks, budget.outside);
    budget.host_bytes = moments.host;
    return budget;
  }

  /// The pipeline rank that reserves most. One that has the same units as the one before and holds no more
  /// micro-batches needs no look, unless a budget decides anew what is recomputed.
  std::int64_t worst_stage(const Candidate& candidate) {
    const Tables tables = tables_of(candidate, 0);
    const schedule::Shape shape = schedule_shape(problem_, candidate);
    const bool by_budget = candidate.recompute.policy == job::Recompute::Policy::budget;
    StageUnits before;
    std::int64_t worst = 0;
    std::int64_t most = -1;
    for (std::int64_t stage = 0; stage < candidate.mesh.pp; ++stage) {
      const StageUnits units = units_of(shape, stage, peak_in_flight(problem_, shape, stage));
      const bool covered = !by_budget && units.counts == before.counts &&
                           units.chunk_micro_batches <= before.chunk_micro_batches;
      before = units;
      if (covered) continue;
      const Moments moments =
          stage_moments({problem_, candidate, tables.parts, tables.bytes, tables.activations, units});
      const std::int64_t reserved = reserved_bytes(problem_.profile.memory, moments.peaks(), 0);
      if (reserved > most) {
        most = reserved;
        worst = stage;
      }
    }
    return worst;
  }

  /// Of the first and the last stage: states, what one chunk of one micro-batch keeps on the device, and the
  /// logits. A budget may recompute everything.
  std::int64_t least_bytes(const Candidate& candidate) {
    const schedule::Shape shape = schedule_shape(problem_, candidate);
    const ModelBytes& bytes = model_bytes(candidate, 0);
    const Activations& activations = activations_for(candidate);
    job::Recompute recompute = candidate.recompute;
    if (recompute.policy == job::Recompute::Policy::budget) recompute.bytes = 0;
    const auto least = [&](std::int64_t stage) {
      const StageUnits units = units_of(shape, stage, 1);
      const KeptActivations kept = kept_on(units.counts, activations, recompute, 1, shape.chunks);
      std::int64_t sum = candidate.offload_activations ? 0 : kept.bytes;
      for (std::size_t kind = 0; kind < unit_kinds; ++kind) {
        sum += units.counts[kind] * bytes[kind].states();
      }
      return sum + (units.count(UnitKind::last) > 0 ? activations.logits : 0);
    };
    const std::int64_t first = least(0);
    return outside(candidate) + (shape.ranks == 1 ? first : std::max(first, least(shape.ranks - 1)));
  }

 private:
  /// What candidates share; valid until the next call for tables.
  struct Tables {
    const Parts& parts;
    const ModelBytes& bytes;
    const Activations& activations;
  };

  Tables tables_of(const Candidate& candidate, std::int64_t shard_index) {
    return {parts_for(candidate), model_bytes(candidate, shard_index), activations_for(candidate)};
  }

  const Parts& parts_for(const Candidate& candidate) {
    const mesh::MeshSizes& mesh = candidate.mesh;
    return parts_.get({mesh.tp, mesh.ep, mesh.etp, mesh.pp > 1 ? 1 : 0},
                      [&] { return parts_of(problem_, mesh); });
  }

  const ModelBytes& model_bytes(const Candidate& candidate, std::int64_t shard_index) {
    const mesh::MeshSizes& mesh = candidate.mesh;
    Sharing sharing = sharing_of(candidate);
    sharing.index = shard_index;
    const std::int64_t expert_cut = problem_.model.experts ? sharing.expert_ranks : 1;
    return bytes_.get({mesh.tp, mesh.ep, mesh.etp, mesh.pp > 1 ? 1 : 0, sharing.ranks, expert_cut,
                       sharing.index, sharing.zero * 4 + static_cast<std::int64_t>(sharing.offload)},
                      [&] { return bytes_of(problem_, parts_for(candidate), sharing); });
  }

  const Activations& activations_for(const Candidate& candidate) {
    const mesh::MeshSizes& mesh = candidate.mesh;
    const bool selective = candidate.recompute.policy == job::Recompute::Policy::selective;
    const std::int64_t batches =
        problem_.profile.memory.inputs_of_step ? micro_batches(problem_, candidate) : 0;
    return activations_.get(
        {mesh.tp, mesh.cp, mesh.etp, candidate.micro, batches,
         static_cast<std::int64_t>(candidate.sequence_parallel) * 2 + static_cast<std::int64_t>(selective)},
        [&] { return activations_of(problem_, candidate, parts_for(candidate).vocab); });
  }

  Moments moments_of(const Candidate& candidate, std::int64_t stage, std::int64_t shard_index) {
    const Tables tables = tables_of(candidate, shard_index);
    const schedule::Shape shape = schedule_shape(problem_, candidate);
    const StageUnits units = units_of(shape, stage, peak_in_flight(problem_, shape, stage));
    return stage_moments({problem_, candidate, tables.parts, tables.bytes, tables.activations, units});
  }

  StageUnits units_of(const schedule::Shape& shape, std::int64_t stage,
                      std::int64_t chunk_micro_batches) const {
    StageUnits units;
    units.chunk_micro_batches = chunk_micro_batches;
    units.chunks = shape.chunks;
    units.counts = counter_.blocks_of(shape, stage);
    const bool holds_last = shape.rank_of(shape.stages() - 1) == stage;
    units.count(UnitKind::first) = shape.rank_of(0) == stage ? 1 : 0;
    units.count(UnitKind::last) = holds_last ? 1 : 0;
    units.count(UnitKind::mtp) = holds_last ? problem_.model.mtp_layers : 0;
    return units;
  }

  /// What lives beside the allocator: the context, and buffers of one communicator for each used axis.
  std::int64_t outside(const Candidate& candidate) const {
    const mesh::MeshSizes& mesh = candidate.mesh;
    const std::int64_t axes = (mesh.tp > 1 ? 1 : 0) + (mesh.cp > 1 ? 1 : 0) + (mesh.pp > 1 ? 1 : 0) +
                              (mesh.batch_ranks() > 1 ? 1 : 0) + (mesh.ep * mesh.etp > 1 ? 1 : 0);
    return problem_.profile.memory.context + axes * problem_.profile.memory.communicator;
  }

  const Problem& problem_;
  BlockCounter counter_;
  DirectMapped<4, Parts> parts_{places};
  DirectMapped<8, ModelBytes> bytes_{places};
  DirectMapped<6, Activations> activations_{places};
};

MemoryModel::MemoryModel(const Problem& problem) : state_(std::make_unique<State>(problem)) {}
MemoryModel::~MemoryModel() = default;
MemoryModel::MemoryModel(MemoryModel&&) noexcept = default;

std::vector<StageBudget> MemoryModel::budgets(const Candidate& candidate) const {
  const mesh::Mesh mesh(candidate.mesh, candidate.order);
  std::vector<StageBudget> budgets;
  for (std::int64_t stage = 0; stage < candidate.mesh.pp; ++stage) {
    budgets.push_back(state_->budget(candidate, stage, 0));
    budgets.back().rank = mesh.rank_of({0, 0, 0, 0, stage});
  }
  return budgets;
}

StageBudget MemoryModel::budget_of(const Candidate& candidate, std::int64_t rank) const {
  const mesh::Mesh mesh(candidate.mesh, candidate.order);
  StageBudget budget =
      state_->budget(candidate, mesh.coordinate(rank, mesh::Axis::pp), mesh.index_in(rank, mesh::shard_axes));
  budget.rank = rank;
  return budget;
}

StageBudget MemoryModel::worst(const Candidate& candidate) const {
  const std::int64_t worst = state_->worst_stage(candidate);
  StageBudget budget = state_->budget(candidate, worst, 0);
  budget.rank = mesh::Mesh(candidate.mesh, candidate.order).rank_of({0, 0, 0, 0, worst});
  return budget;
}

std::int64_t MemoryModel::least_bytes(const Candidate& candidate) const {
  return state_->least_bytes(candidate);
}

std::int64_t allowed_bytes(const Problem& problem) {
  return static_cast<std::int64_t>(static_cast<double>(problem.cluster.usable_bytes) *
                                   (1 - problem.headroom));
}

}  // namespace ndmesh::plan
