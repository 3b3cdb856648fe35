#include "ndmesh/plan/memory/training_memory.h"

#include <algorithm>
#include <optional>

#include "ndmesh/plan/memory/direct_mapped.h"
#include "ndmesh/plan/memory/leanest_cut.h"
#include "ndmesh/plan/memory/stage_memory.h"
#include "ndmesh/plan/stage_cut.h"

namespace ndmesh::plan {
namespace {

/// More distinct (tp, cp, ...) than a search has in its inner loops.
constexpr std::size_t places = 512;
/// A search asks for the cut of one candidate several times in a row.
constexpr std::size_t cuts_kept = 16;

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
  explicit State(const Problem& problem) : problem_(problem), counter_(problem), cuts_(problem) {}

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

  /// The pipeline rank that reserves most.
  std::int64_t worst_stage(const Candidate& candidate) {
    const std::vector<layout::Range>& cut = stages(candidate);
    const Tables tables = tables_of(candidate, 0);
    const schedule::Shape shape = schedule_shape(problem_, candidate);
    StageUnits before;
    std::int64_t worst = 0;
    std::int64_t most = -1;
    for (std::int64_t stage = 0; stage < candidate.mesh.pp; ++stage) {
      StageUnits units = counter_.units_of(shape, cut, stage);
      const bool needs_no_look = stage > 0 && is_covered(candidate, before, units);
      if (!needs_no_look) {
        const std::int64_t reserved = reserved_by(candidate, tables, units);
        if (reserved > most) {
          most = reserved;
          worst = stage;
        }
      }
      before = std::move(units);
    }
    return worst;
  }

  const std::vector<layout::Range>& stages(const Candidate& candidate) {
    const schedule::Shape shape = schedule_shape(problem_, candidate);
    if (problem_.layers.policy != job::StageLayers::Policy::memory || shape.stages() == 1) {
      return cuts_.of(shape.stages());
    }
    return leanest_.get(cut_key(candidate), [&] {
      const Tables tables = tables_of(candidate, 0);
      return leanest_cut(costs(), counter_, shape,
                         [&](const StageUnits& units) { return reserved_by(candidate, tables, units); });
    });
  }

  /// Of the first and the last stage: states, what one chunk of one micro-batch keeps on the device, and the
  /// logits. A budget may recompute everything.
  std::int64_t least_bytes(const Candidate& candidate) {
    const schedule::Shape shape = schedule_shape(problem_, candidate);
    const ModelBytes& bytes = model_bytes(candidate, 0);
    const Activations& activations = activations_for(candidate);
    if (problem_.layers.policy == job::StageLayers::Policy::memory && shape.stages() > 1) {
      return outside(candidate) + least_of_any_cut(candidate, shape, bytes, activations);
    }
    const std::vector<layout::Range>& cut = stages(candidate);
    job::Recompute recompute = candidate.recompute;
    if (recompute.policy == job::Recompute::Policy::budget) recompute.bytes = 0;
    const auto least = [&](std::int64_t stage) {
      const UnitCounts counts = counter_.units_of(shape, cut, stage).counts;
      std::int64_t sum =
          candidate.offload_activations ? 0 : least_kept(counts, activations, recompute, shape.chunks);
      for (std::size_t kind = 0; kind < unit_kinds; ++kind) {
        sum += counts[kind] * bytes[kind].states();
      }
      return sum + (counts[static_cast<std::size_t>(UnitKind::last)] > 0 ? activations.logits : 0);
    };
    const std::int64_t first = least(0);
    return outside(candidate) + (shape.ranks == 1 ? first : std::max(first, least(shape.ranks - 1)));
  }

 private:
  using LeanestKey = DirectMapped<15, std::vector<layout::Range>>::Key;

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
    const std::vector<layout::Range>& cut = stages(candidate);
    const Tables tables = tables_of(candidate, shard_index);
    const schedule::Shape shape = schedule_shape(problem_, candidate);
    const StageUnits units = counter_.units_of(shape, cut, stage);
    return stage_moments({problem_, candidate, tables.parts, tables.bytes, tables.activations, units});
  }

  std::int64_t reserved_by(const Candidate& candidate, const Tables& tables, const StageUnits& units) const {
    const Moments moments =
        stage_moments({problem_, candidate, tables.parts, tables.bytes, tables.activations, units});
    return reserved_bytes(problem_.profile.memory, moments.peaks(), 0);
  }

  /// A rank that has the same blocks in each chunk as the one before, and no more of any chunk in flight, needs no look,
  /// unless a budget decides anew what is recomputed. Later ranks of `interleaved` have no more of any chunk; of other
  /// schedules only the sum is asked, which decides where chunks weigh the same.
  bool is_covered(const Candidate& candidate, const StageUnits& before, const StageUnits& units) const {
    using Policy = job::Recompute::Policy;
    const bool weigh_the_same =
        units.chunks == 1 || (units.by_chunk.empty() && candidate.recompute.policy != Policy::every);
    const bool in_turn = candidate.schedule == schedule::Kind::interleaved && !runs_list(problem_, candidate);
    return candidate.recompute.policy != Policy::budget && (weigh_the_same || in_turn) &&
           units.counts == before.counts && units.by_chunk == before.by_chunk &&
           units.chunk_micro_batches <= before.chunk_micro_batches;
  }

  /// Of one block of a kind, on any rank: its states and what it keeps of a micro-batch.
  std::int64_t least_of_block(const Candidate& candidate, const ModelBytes& bytes,
                              const Activations& activations, std::size_t kind) const {
    using Policy = job::Recompute::Policy;
    const std::int64_t whole = activations.blocks[kind].kept;
    const bool keeps_all =
        candidate.recompute.policy == Policy::none || candidate.recompute.policy == Policy::selective;
    const std::int64_t kept = keeps_all ? whole : std::min(whole, activations.boundary);
    return bytes[kind].states() + (candidate.offload_activations ? 0 : kept);
  }

  /// However layers are cut, the fullest rank holds no less than the mean, and the last one the head and its logits.
  std::int64_t least_of_any_cut(const Candidate& candidate, const schedule::Shape& shape,
                                const ModelBytes& bytes, const Activations& activations) const {
    UnitCounts all = counter_.blocks_of({0, problem_.model.layers});
    all[static_cast<std::size_t>(UnitKind::mtp)] = problem_.model.mtp_layers;
    std::int64_t sum = 0;
    for (std::size_t kind = 0; kind < activations.blocks.size(); ++kind) {
      if (all[kind] > 0) sum += all[kind] * least_of_block(candidate, bytes, activations, kind);
    }
    const std::int64_t first = bytes[static_cast<std::size_t>(UnitKind::first)].states();
    const std::int64_t last = bytes[static_cast<std::size_t>(UnitKind::last)].states() + activations.logits;
    return std::max({(sum + first + last) / shape.ranks, first, last});
  }

  /// What lives beside the allocator: the context, and buffers of one communicator for each used axis.
  std::int64_t outside(const Candidate& candidate) const {
    const mesh::MeshSizes& mesh = candidate.mesh;
    const std::int64_t axes = (mesh.tp > 1 ? 1 : 0) + (mesh.cp > 1 ? 1 : 0) + (mesh.pp > 1 ? 1 : 0) +
                              (mesh.batch_ranks() > 1 ? 1 : 0) + (mesh.ep * mesh.etp > 1 ? 1 : 0);
    return problem_.profile.memory.context + axes * problem_.profile.memory.communicator;
  }

  const LayerCosts& costs() {
    if (!costs_) costs_.emplace(problem_);
    return *costs_;
  }

  static LeanestKey cut_key(const Candidate& candidate) {
    const mesh::MeshSizes& mesh = candidate.mesh;
    const std::int64_t flags = (candidate.reshard ? 1 : 0) + (candidate.offload_activations ? 2 : 0) +
                               (candidate.sequence_parallel ? 4 : 0);
    return {mesh.tp,
            mesh.cp,
            mesh.dp_shard,
            mesh.dp_replicate,
            mesh.pp,
            mesh.ep,
            mesh.etp,
            candidate.micro,
            static_cast<std::int64_t>(candidate.schedule),
            candidate.chunks,
            candidate.zero * 8 + flags,
            static_cast<std::int64_t>(candidate.recompute.policy),
            candidate.recompute.layers,
            candidate.recompute.bytes,
            static_cast<std::int64_t>(candidate.offload)};
  }

  const Problem& problem_;
  UnitCounter counter_;
  CutTable cuts_;
  std::optional<LayerCosts> costs_;  // once a cut by memory asks
  DirectMapped<4, Parts> parts_{places};
  DirectMapped<8, ModelBytes> bytes_{places};
  DirectMapped<6, Activations> activations_{places};
  DirectMapped<15, std::vector<layout::Range>> leanest_{cuts_kept};
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

const std::vector<layout::Range>& MemoryModel::stages(const Candidate& candidate) const {
  return state_->stages(candidate);
}

std::int64_t MemoryModel::least_bytes(const Candidate& candidate) const {
  return state_->least_bytes(candidate);
}

std::int64_t allowed_bytes(const Problem& problem) {
  return static_cast<std::int64_t>(static_cast<double>(problem.cluster.usable_bytes) *
                                   (1 - problem.headroom));
}

}  // namespace ndmesh::plan
