#include "ndmesh/plan/time/stage_work.h"

#include <array>
#include <bit>

#include "ndmesh/plan/integers.h"
#include "ndmesh/plan/memory/activation_bytes.h"
#include "ndmesh/plan/time/groups.h"

namespace ndmesh::plan {
namespace {

constexpr std::size_t most_layers = 150'000;  ///< of all tables together, some 200 bytes each
constexpr std::size_t most_places = 50'000;

/// A hash of numbers, one after the other.
struct Mixer {
  std::uint64_t hash = 0;
  void mix(std::uint64_t value) {
    hash = (hash ^ value) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 29;
  }
};

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
  return {work.forward.total(), work.input_grad.total(), work.weight_grad.total(), work.dense};
}

/// What the blocks of a candidate offload; under a budget, which may recompute all of them, the least.
OffloadedBytes offloaded_bytes(const Problem& problem, const Candidate& candidate) {
  if (!candidate.offload_activations) {
    return {};
  }
  const Activations activations = activations_of(problem, candidate, problem.model.vocab);
  const double input = real(activations.boundary);
  if (candidate.recompute.policy == job::Recompute::Policy::budget) {
    return {.dense = input, .moe = input, .recomputed = input};
  }
  return {.dense = real(activations.blocks[0].kept),
          .moe = real(activations.blocks[1].kept),
          .recomputed = input};
}

/// The division of a candidate, its groups left as if they were of one rank.
Division lone_division(const Problem& problem, const Candidate& candidate) {
  const mesh::MeshSizes& sizes = candidate.mesh;
  return {.tokens = real(candidate.micro) * real(problem.seq_len) / real(sizes.cp),
          .tp = real(sizes.tp),
          .cp = real(sizes.cp),
          .ep = real(sizes.ep),
          .etp = real(sizes.etp),
          .sequence_parallel = candidate.sequence_parallel,
          .offloaded = offloaded_bytes(problem, candidate),
          .tp_group = {},
          .cp_group = {},
          .ep_group = {},
          .etp_group = {}};
}

Division division_of(const Problem& problem, const Candidate& candidate, const Collectives& collectives) {
  Division division = lone_division(problem, candidate);
  division.tp_group = collectives.group(extents_of(candidate, {mesh::Axis::tp}));
  division.cp_group = collectives.group(extents_of(candidate, {mesh::Axis::cp}));
  division.ep_group = collectives.group(extents_of(candidate, mesh::ExpertAxis::ep));
  division.etp_group = collectives.group(extents_of(candidate, mesh::ExpertAxis::etp));
  return division;
}

}  // namespace

Totals& Totals::operator+=(const Totals& other) {
  forward += other.forward;
  input_grad += other.input_grad;
  weight_grad += other.weight_grad;
  dense += other.dense;
  return *this;
}

WorkTable::WorkTable(const Problem& problem, const LayerClock& clock, const job::Recompute& recompute)
    : embedding_(clock.embedding()), behind_(clock.head()) {
  const model::ModelSpec& model = problem.model;
  tied_ = model.tied ? embedding_.dense : 0;
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

Work WorkTable::blocks(const layout::Range& layers) const {
  Work sum = before_[static_cast<std::size_t>(layers.start + layers.size)];
  sum -= before_[static_cast<std::size_t>(layers.start)];
  return sum;
}

/// `sum` of a stage's blocks, and its ends.
template <typename Sum>
Sum WorkTable::with_ends(Sum sum, const Stage& stage, const Sum& embedding, const Sum& behind) const {
  if (stage.first) {
    sum += embedding;
  }
  if (stage.last) {
    sum += behind;
  }
  if (stage.first && stage.last) {
    sum.dense -= tied_;
  }
  return sum;
}

Work WorkTable::work(const Stage& stage) const {
  return with_ends(blocks(stage.layers), stage, embedding_, behind_);
}

Totals WorkTable::totals(const Stage& stage) const {
  const Totals& upper = totals_before_[static_cast<std::size_t>(stage.layers.start + stage.layers.size)];
  const Totals& lower = totals_before_[static_cast<std::size_t>(stage.layers.start)];
  const Totals sum{upper.forward - lower.forward, upper.input_grad - lower.input_grad,
                   upper.weight_grad - lower.weight_grad, upper.dense - lower.dense};
  return with_ends(sum, stage, embedding_totals_, behind_totals_);
}

WorkTables::WorkTables(const Problem& problem, const Rates& rates, const Collectives& collectives)
    : problem_(problem), rates_(rates), collectives_(collectives) {}

WorkTables::Key WorkTables::key_of(const Candidate& candidate) {
  Key key{.mesh = candidate.mesh,
          .order = candidate.order,
          .micro = candidate.micro,
          .recompute = candidate.recompute,
          .sequence_parallel = candidate.sequence_parallel || candidate.mesh.tp == 1,
          .offload_activations = candidate.offload_activations};
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
  Mixer mixer;
  const mesh::MeshSizes& sizes = key.mesh;
  for (const std::int64_t value : {sizes.tp, sizes.cp, sizes.dp_shard, sizes.dp_replicate, sizes.pp, sizes.ep,
                                   sizes.etp, key.micro, key.recompute.layers, key.recompute.bytes}) {
    mixer.mix(static_cast<std::uint64_t>(value));
  }
  mixer.mix(static_cast<std::uint64_t>(key.recompute.policy) * 4 + (key.sequence_parallel ? 2U : 0U) +
            (key.offload_activations ? 1U : 0U));
  for (const mesh::Axis axis : key.order) {
    mixer.mix(static_cast<std::uint64_t>(axis));
  }
  return mixer.hash;
}

std::size_t WorkTables::Hash::operator()(const Divided& divided) const {
  Mixer mixer;
  const Division& division = divided.division;
  for (const double value :
       {division.tokens, division.tp, division.cp, division.ep, division.etp, division.tp_group.hop_seconds,
        division.cp_group.hop_seconds, division.ep_group.hop_seconds, division.etp_group.hop_seconds,
        division.offloaded.dense}) {
    mixer.mix(std::bit_cast<std::uint64_t>(value));
  }
  for (const std::int64_t value : {divided.recompute.layers, divided.recompute.bytes}) {
    mixer.mix(static_cast<std::uint64_t>(value));
  }
  mixer.mix(static_cast<std::uint64_t>(divided.recompute.policy) * 2 + division.sequence_parallel);
  return mixer.hash;
}

const WorkTable& WorkTables::of(const Candidate& candidate) {
  const Key key = key_of(candidate);
  if (const auto found = places_.find(key); found != places_.end()) {
    return *found->second;
  }
  Divided divided{division_of(problem_, candidate, collectives_), key.recompute};
  divided.division.sequence_parallel = key.sequence_parallel;
  return *(places_[key] = &table(divided));
}

const WorkTable& WorkTables::alone(const Candidate& candidate) {
  Key key = key_of(candidate);
  key.order = mesh::default_order;
  key.mesh.pp = key.mesh.dp_shard = key.mesh.dp_replicate = 1;
  if (const auto found = alone_.find(key); found != alone_.end()) {
    return *found->second;
  }
  Divided divided{lone_division(problem_, candidate), key.recompute};
  divided.division.sequence_parallel = key.sequence_parallel;
  return *(alone_[key] = &table(divided));
}

const WorkTable& WorkTables::table(const Divided& divided) {
  const std::size_t layers = static_cast<std::size_t>(problem_.model.layers);
  if (tables_.size() * layers >= most_layers || places_.size() + alone_.size() >= most_places) {
    places_.clear();
    alone_.clear();
    tables_.clear();
  }
  if (const auto found = tables_.find(divided); found != tables_.end()) {
    return found->second;
  }
  const LayerClock clock(problem_, rates_, collectives_, divided.division);
  return tables_.emplace(divided, WorkTable(problem_, clock, divided.recompute)).first->second;
}

}  // namespace ndmesh::plan
