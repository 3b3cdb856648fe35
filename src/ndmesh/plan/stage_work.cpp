#include "ndmesh/plan/stage_work.h"

#include <array>

#include "ndmesh/plan/groups.h"

namespace ndmesh::plan {
namespace {

bool is_recomputed(const job::Recompute& recompute, std::int64_t layer) {
  switch (recompute.policy) {
    case job::Recompute::Policy::none:
    case job::Recompute::Policy::selective:
    case job::Recompute::Policy::budget:
      return false;
    case job::Recompute::Policy::full:
      return true;
    case job::Recompute::Policy::every:
      return layer % recompute.layers == 0;
  }
  return false;
}

/// Works of the few kinds of layers that a model has, each computed once.
class KindWorks {
 public:
  explicit KindWorks(const LayerClock& clock) : clock_(clock) {}

  const Work& of(const LayerKind& kind) {
    const std::size_t index = kind.moe + 2 * kind.windowed + 4 * kind.recomputed + 8 * kind.selective;
    if (!known_[index]) {
      works_[index] = clock_.layer(kind);
      known_[index] = true;
    }
    return works_[index];
  }

 private:
  const LayerClock& clock_;
  std::array<Work, 16> works_{};
  std::array<bool, 16> known_{};
};

Totals totals_of(const Work& work) {
  return {work.forward.total(), work.input_grad.total(), work.weight_grad.total()};
}

Totals& operator+=(Totals& sum, const Totals& other) {
  sum.forward += other.forward;
  sum.input_grad += other.input_grad;
  sum.weight_grad += other.weight_grad;
  return sum;
}

double real(std::int64_t value) {
  return static_cast<double>(value);
}

Division division_of(const Problem& problem, const Candidate& candidate, const Collectives& collectives) {
  const mesh::MeshSizes& sizes = candidate.mesh;
  return {.tokens = real(candidate.micro) * real(problem.seq_len) / real(sizes.cp),
          .tp = real(sizes.tp),
          .cp = real(sizes.cp),
          .ep = real(sizes.ep),
          .etp = real(sizes.etp),
          .sequence_parallel = candidate.sequence_parallel,
          .tp_group = collectives.group(extents_of(candidate, {mesh::Axis::tp})),
          .cp_group = collectives.group(extents_of(candidate, {mesh::Axis::cp})),
          .ep_group = collectives.group(extents_of(candidate, mesh::ExpertAxis::ep)),
          .etp_group = collectives.group(extents_of(candidate, mesh::ExpertAxis::etp))};
}

}  // namespace

WorkTable::WorkTable(const Problem& problem, const LayerClock& clock, const job::Recompute& recompute)
    : embedding_(clock.embedding()), behind_(clock.head()) {
  const model::ModelSpec& model = problem.model;
  KindWorks kinds(clock);
  Work sum;
  before_.push_back(sum);
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    sum += kinds.of({.moe = model.is_moe(layer),
                     .windowed = model.is_windowed(layer),
                     .recomputed = is_recomputed(recompute, layer),
                     .selective = recompute.policy == job::Recompute::Policy::selective});
    before_.push_back(sum);
  }
  for (std::int64_t extra = 0; extra < model.mtp_layers; ++extra) {
    Work last = before_[static_cast<std::size_t>(model.layers)];
    last -= before_[static_cast<std::size_t>(model.layers - 1)];
    behind_ += last;
    behind_ += clock.prediction();
  }
  for (const Work& work : before_) {
    totals_before_.push_back(totals_of(work));
  }
  embedding_totals_ = totals_of(embedding_);
  behind_totals_ = totals_of(behind_);
}

Work WorkTable::blocks(std::int64_t first, std::int64_t count) const {
  Work sum = before_[static_cast<std::size_t>(first + count)];
  sum -= before_[static_cast<std::size_t>(first)];
  return sum;
}

Work WorkTable::work(std::int64_t first, std::int64_t count) const {
  Work sum = blocks(first, count);
  if (first == 0) {
    sum += embedding_;
  }
  if (first + count + 1 == static_cast<std::int64_t>(before_.size())) {
    sum += behind_;
  }
  return sum;
}

Totals WorkTable::totals(std::int64_t first, std::int64_t count) const {
  const Totals& upper = totals_before_[static_cast<std::size_t>(first + count)];
  const Totals& lower = totals_before_[static_cast<std::size_t>(first)];
  Totals sum{upper.forward - lower.forward, upper.input_grad - lower.input_grad,
             upper.weight_grad - lower.weight_grad};
  if (first == 0) {
    sum += embedding_totals_;
  }
  if (first + count + 1 == static_cast<std::int64_t>(before_.size())) {
    sum += behind_totals_;
  }
  return sum;
}

WorkTables::WorkTables(const Problem& problem, const Rates& rates, const Collectives& collectives)
    : problem_(problem), rates_(rates), collectives_(collectives) {}

WorkTables::Key WorkTables::key_of(const Candidate& candidate) {
  Key key{.mesh = candidate.mesh,
          .order = candidate.order,
          .micro = candidate.micro,
          .recompute = candidate.recompute,
          .sequence_parallel = candidate.sequence_parallel || candidate.mesh.tp == 1};
  if (candidate.order == mesh::default_order) {
    // pp and dp_replicate lie outside of tp and cp, and of experts that fit on the ranks inside of them.
    const bool inside = candidate.mesh.ep * candidate.mesh.etp <= candidate.mesh.tp * candidate.mesh.cp;
    key.mesh.pp = 1;
    key.mesh.dp_shard = inside ? 1 : key.mesh.dp_shard;
    key.mesh.dp_replicate = inside ? 1 : key.mesh.dp_replicate;
  }
  return key;
}

std::size_t WorkTables::Hash::operator()(const Key& key) const {
  std::uint64_t hash = 0;
  const auto mix = [&hash](std::int64_t value) {
    hash = (hash ^ static_cast<std::uint64_t>(value)) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 29;
  };
  const mesh::MeshSizes& sizes = key.mesh;
  for (const std::int64_t value : {sizes.tp, sizes.cp, sizes.dp_shard, sizes.dp_replicate, sizes.pp, sizes.ep,
                                   sizes.etp, key.micro, key.recompute.layers, key.recompute.bytes}) {
    mix(value);
  }
  mix(static_cast<std::int64_t>(key.recompute.policy) * 2 + key.sequence_parallel);
  for (const mesh::Axis axis : key.order) {
    mix(static_cast<std::int64_t>(axis));
  }
  return hash;
}

const WorkTable& WorkTables::of(const Candidate& candidate) {
  const Key key = key_of(candidate);
  const auto found = tables_.find(key);
  if (found != tables_.end()) {
    return found->second;
  }
  Candidate divided = candidate;
  divided.sequence_parallel = key.sequence_parallel;
  const LayerClock clock(problem_, rates_, collectives_, division_of(problem_, divided, collectives_));
  return tables_.emplace(key, WorkTable(problem_, clock, candidate.recompute)).first->second;
}

}  // namespace ndmesh::plan
