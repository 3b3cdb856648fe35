#include "ndmesh/plan/time/step_time.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "ndmesh/model/config.h"
#include "ndmesh/plan/integers.h"
#include "ndmesh/plan/memory/training_memory.h"
#include "ndmesh/plan/stage_cut.h"
#include "ndmesh/plan/time/data_time.h"
#include "ndmesh/plan/time/groups.h"
#include "ndmesh/plan/time/recompute_time.h"
#include "ndmesh/plan/time/stage_work.h"
#include "ndmesh/schedule/simulate.h"

namespace ndmesh::plan {
namespace {

constexpr double least_slack = 1 - 1e-9;  // sums of bound and simulation round differently

/// One pipeline rank of a candidate.
struct RankTime {
  Work work;  ///< of all its chunks, one micro-batch
  DataTime data;
  double each_forward = 0;  ///< what the data axes add to one micro-batch, slow-down included
  double each_backward = 0;
  double slowdown_each = 0;  ///< compute that hidden communication slows down, in each micro-batch
  double slowdown_once = 0;  ///< and once a step
  double optimizer = 0;
  double tied = 0;  ///< sum of a table that both ends of the pipeline hold
  double end = 0;   ///< when its last action ends

  /// Seconds that one micro-batch keeps it, waits included.
  double each() const { return work.whole().total() + each_forward + each_backward; }
  double tail() const { return data.once() + optimizer + tied + slowdown_once; }
};

/// A rank is done when the gradients that it sent have passed all stages before it: rank 0 last.
void set_ends(bool split, const std::vector<schedule::StageSeconds>& seconds,
              const schedule::Simulation& simulation, std::vector<RankTime>& ranks) {
  double drain = 0;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    ranks[r].end = std::max(simulation.seconds - (split ? 0 : drain), simulation.busy[r]);
    drain += seconds[r].input_grad + seconds[r].weight_grad + seconds[r].send;
  }
}

void add(std::vector<Exposed>& list, const std::string& what, double seconds) {
  if (seconds <= 0) {
    return;
  }
  const auto found = std::ranges::find(list, what, &Exposed::what);
  if (found == list.end()) {
    list.push_back({.what = what, .seconds = seconds});
  } else {
    found->seconds += seconds;
  }
}

/// Axes of more than one rank.
std::string used_axes(const Candidate& candidate, mesh::AxisSet axes) {
  mesh::AxisSet used;
  for (const mesh::Axis axis : mesh::all_axes) {
    if (axes.contains(axis) && candidate.mesh.size(axis) > 1) {
      used = used.with(axis);
    }
  }
  return used.name();
}

std::string context_collective(job::ContextKind kind) {
  switch (kind) {
    case job::ContextKind::ring:
      return "cp/send";
    case job::ContextKind::allgather:
      return "cp/all_gather";
    case job::ContextKind::alltoall:
    case job::ContextKind::hierarchical:
      return "cp/all_to_all";
  }
  return "cp";
}

/// Dense FLOP/s of the device in the number format of the job's products; 0 when not known.
double product_peak(const Problem& problem) {
  const cluster::Device& device = problem.cluster.device;
  return problem.precision.fp8_products ? device.fp8_flops : device.peak_flops(problem.precision.compute);
}

Stage stage_of(const schedule::Shape& shape, const std::vector<layout::Range>& cut, std::int64_t stage) {
  return {.layers = cut[static_cast<std::size_t>(stage)],
          .first = stage == 0,
          .last = stage + 1 == shape.stages()};
}

}  // namespace

double model_flops_utilization(const Problem& problem, double tokens_per_second) {
  const double peak = product_peak(problem);
  return peak <= 0
             ? 0
             : tokens_per_second * model::flops_per_token(problem.model, problem.seq_len).total() / peak;
}

class TimeModel::State {
 public:
  State(const Problem& problem, const Constants& constants)
      : problem_(problem),
        rates_(rates_of(problem, constants)),
        collectives_(problem.cluster, constants),
        tables_(problem, rates_, collectives_),
        cuts_(problem) {
    if (problem.layers.policy == job::StageLayers::Policy::memory) memory_.emplace(problem);
  }

  StepTime step(const Candidate& candidate);
  double least_seconds(const Candidate& candidate);
  double least_compute_seconds(const Candidate& candidate);

 private:
  const std::vector<layout::Range>& stages(const Candidate& candidate);
  /// What bounds a step: seconds of the pipeline, and elements that every rank updates.
  struct LeastWork {
    double pipeline = 0;
    double held = 0;
  };
  double bound(const Candidate& candidate, const WorkTable& table);
  LeastWork least_pipeline(const Candidate& candidate, const WorkTable& table);
  LeastWork least_of_any_cut(const Candidate& candidate, const WorkTable& table) const;
  double send_seconds(const Candidate& candidate) const;
  double blocking_send(double send) const { return problem_.profile.time.overlap_sends ? 0 : send; }
  std::vector<Work> stage_works(const Candidate& candidate);
  void add_recomputed(const Candidate& candidate, std::vector<Work>& stages);
  std::vector<schedule::StageSeconds> stage_seconds(const schedule::Shape& shape,
                                                    const std::vector<Work>& stages,
                                                    const std::vector<RankTime>& ranks, double send) const;
  RankTime rank_time(const Candidate& candidate, const DataGroups& groups, const Work& work) const;
  std::vector<RankTime> rank_times(const Candidate& candidate, const std::vector<Work>& stages) const;
  void tie_ends(const Candidate& candidate, std::vector<RankTime>& ranks) const;
  double straggling() const;
  void add_waits(const Candidate& candidate, const RankTime& rank, double micro_batches,
                 StepTime& time) const;
  void add_rest(const Candidate& candidate, StepTime& time);

  /// Counting a model's FLOPs takes longer than a simulation, so it is done once, when first asked for.
  double utilization_of_one_token() {
    if (!token_utilization_) {
      token_utilization_ = model_flops_utilization(problem_, 1);
    }
    return *token_utilization_;
  }

  const Problem& problem_;
  Rates rates_;
  Collectives collectives_;
  WorkTables tables_;
  CutTable cuts_;
  std::optional<MemoryModel> memory_;  // where it decides about stages
  std::vector<Totals> by_rank_;        // of bound()
  std::optional<double> token_utilization_;
};

const std::vector<layout::Range>& TimeModel::State::stages(const Candidate& candidate) {
  return memory_ ? memory_->stages(candidate) : cuts_.of(schedule_shape(problem_, candidate).stages());
}

double TimeModel::State::straggling() const {
  return rates_.straggler * std::log2(std::max(1.0, real(problem_.cluster.nodes)));
}

/// Activations to the next stage; tp ranks that hold parts of the sequence send their parts.
double TimeModel::State::send_seconds(const Candidate& candidate) const {
  if (candidate.mesh.pp <= 1) {
    return 0;
  }
  const double parts =
      real(candidate.mesh.cp) * (candidate.sequence_parallel ? real(candidate.mesh.tp) : 1.0);
  const double elements =
      real(candidate.micro) * real(problem_.seq_len) * real(problem_.model.hidden) / parts;
  return collectives_.send(collectives_.group(extents_of(candidate, {mesh::Axis::pp})),
                           elements * rates_.element_bytes);
}

RankTime TimeModel::State::rank_time(const Candidate& candidate, const DataGroups& groups,
                                     const Work& work) const {
  RankTime rank;
  rank.work = work;
  rank.data = data_time(problem_, candidate, groups, collectives_, work, rates_);
  const DataTime& data = rank.data;
  const double slow_forward = rates_.overlap_slowdown * data.gather_forward.hidden;
  const double slow_backward =
      rates_.overlap_slowdown * (data.gather_backward.hidden + data.reduce_each.hidden);
  rank.each_forward = data.each_forward() + slow_forward;
  rank.each_backward = data.each_backward() + slow_backward;
  rank.slowdown_each = slow_forward + slow_backward;
  rank.slowdown_once = rates_.overlap_slowdown *
                       (data.reduce_last.hidden + data.replicate.hidden + data.gather_updated.hidden);
  rank.optimizer = optimizer_seconds(candidate, rates_, updated_elements(candidate, groups, work));
  return rank;
}

/// A tied table lives on both ends of the pipeline, which sum its gradient.
void TimeModel::State::tie_ends(const Candidate& candidate, std::vector<RankTime>& ranks) const {
  if (!problem_.model.tied || ranks.size() <= 1) {
    return;
  }
  // Two ranks half a pipeline apart meet on the level on which its ends meet.
  std::vector<cluster::Extent> extents = extents_of(candidate, {mesh::Axis::pp});
  extents.front() = {.size = 2, .stride = extents.front().stride * (candidate.mesh.pp / 2)};
  const double bytes = real(problem_.model.vocab) * real(problem_.model.hidden) / real(candidate.mesh.tp) *
                       real(problem_.profile.time.gradient_bytes);
  const double seconds = collectives_.all_reduce(collectives_.group(extents), bytes);
  ranks.front().tied = seconds;
  ranks.back().tied = seconds;
}

std::vector<RankTime> TimeModel::State::rank_times(const Candidate& candidate,
                                                   const std::vector<Work>& stages) const {
  const schedule::Shape shape = schedule_shape(problem_, candidate);
  std::vector<Work> works(static_cast<std::size_t>(shape.ranks));
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    works[static_cast<std::size_t>(shape.rank_of(static_cast<std::int64_t>(stage)))] += stages[stage];
  }
  const DataGroups groups = data_groups(candidate, collectives_);
  std::vector<RankTime> ranks;
  ranks.reserve(works.size());
  for (const Work& work : works) {
    ranks.push_back(rank_time(candidate, groups, work));
  }
  tie_ends(candidate, ranks);
  return ranks;
}

/// Adds the forwards that `budget` runs again to the backward of each stage, and what the other blocks offload
/// beyond the least.
void TimeModel::State::add_recomputed(const Candidate& candidate, std::vector<Work>& stages) {
  if (candidate.recompute.policy != job::Recompute::Policy::budget) {
    return;
  }
  const schedule::Shape shape = schedule_shape(problem_, candidate);
  const std::vector<layout::Range>& cut = this->stages(candidate);
  const std::vector<RecomputedBlocks> by_rank = recomputed_blocks(problem_, candidate, cut);
  Candidate keeping = candidate;
  keeping.recompute = {};
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    const layout::Range& layers = cut[stage];
    const double share =
        by_rank[static_cast<std::size_t>(shape.rank_of(static_cast<std::int64_t>(stage)))].share();
    Pass again = tables_.of(candidate).blocks(layers).forward;
    const Pass kept = tables_.of(keeping).blocks(layers).forward;
    const double more = (1 - share) * (kept.wait(Wait::offload) - again.wait(Wait::offload));
    again.wait(Wait::offload) = 0;  // a forward that runs again sends nothing
    again *= share;
    stages[stage].input_grad += again;
    stages[stage].forward.wait(Wait::offload) += more;
    stages[stage].input_grad.wait(Wait::reload) += more;
  }
}

std::vector<Work> TimeModel::State::stage_works(const Candidate& candidate) {
  const schedule::Shape shape = schedule_shape(problem_, candidate);
  const WorkTable& table = tables_.of(candidate);
  std::vector<Work> works;
  works.reserve(static_cast<std::size_t>(shape.stages()));
  const std::vector<layout::Range>& cut = stages(candidate);
  for (std::int64_t stage = 0; stage < shape.stages(); ++stage) {
    works.push_back(table.work(stage_of(shape, cut, stage)));
  }
  return works;
}

/// What the schedule simulates: a rank's data communication is dealt out to its chunks.
std::vector<schedule::StageSeconds> TimeModel::State::stage_seconds(const schedule::Shape& shape,
                                                                    const std::vector<Work>& stages,
                                                                    const std::vector<RankTime>& ranks,
                                                                    double send) const {
  const double blocking = blocking_send(send);
  std::vector<schedule::StageSeconds> seconds;
  seconds.reserve(stages.size());
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    const RankTime& rank = ranks[static_cast<std::size_t>(shape.rank_of(static_cast<std::int64_t>(stage)))];
    const double share = 1 / real(shape.chunks);
    seconds.push_back({.forward = stages[stage].forward.total() + share * rank.each_forward +
                                  rates_.micro_batch_seconds + blocking,
                       .input_grad = stages[stage].input_grad.total() + share * rank.each_backward + blocking,
                       .weight_grad = stages[stage].weight_grad.total(),
                       .send = send});
  }
  return seconds;
}

StepTime TimeModel::State::step(const Candidate& candidate) {
  const schedule::Shape shape = schedule_shape(problem_, candidate);
  std::vector<Work> stages = stage_works(candidate);
  add_recomputed(candidate, stages);
  std::vector<RankTime> ranks = rank_times(candidate, stages);
  const double send = send_seconds(candidate);
  const std::vector<schedule::StageSeconds> seconds = stage_seconds(shape, stages, ranks, send);
  const schedule::Simulation simulation = runs_list(problem_, candidate)
                                              ? schedule::simulate_list(*problem_.list.schedule, seconds)
                                              : schedule::simulate(shape, seconds);
  set_ends(splits_backward(problem_, candidate), seconds, simulation, ranks);
  const RankTime& last =
      *std::ranges::max_element(ranks, {}, [](const RankTime& rank) { return rank.end + rank.tail(); });

  const double micro_batches = real(shape.micro_batches);
  const double passes = micro_batches * real(shape.chunks);
  StepTime time;
  time.bubble_share = simulation.bubble();
  time.compute = micro_batches * (last.work.whole().compute + last.slowdown_each) + last.slowdown_once;
  time.optimizer = last.optimizer;
  time.other = passes * rates_.micro_batch_seconds;
  add_waits(candidate, last, micro_batches, time);
  const double blocked = 2 * passes * blocking_send(send);
  const double idle = last.end - micro_batches * last.each() - blocked - time.other;
  const double waiting = shape.ranks > 1 ? std::max(0.0, idle) : 0;
  const double transfers = std::min(waiting, 2 * real(shape.ranks - 1) * send);
  add(time.by_collective, "pp/send", transfers + blocked);
  add(time.by_collective, "pp/all_reduce", last.tied);
  time.bubble = waiting - transfers;
  for (const Exposed& exposed : time.by_collective) {
    time.exposed += exposed.seconds;
  }
  add_rest(candidate, time);
  return time;
}

void TimeModel::State::add_waits(const Candidate& candidate, const RankTime& rank, double micro_batches,
                                 StepTime& time) const {
  Pass whole = rank.work.whole();
  add(time.by_collective, "tp/all_gather", micro_batches * whole.wait(Wait::tp_all_gather));
  add(time.by_collective, "tp/reduce_scatter", micro_batches * whole.wait(Wait::tp_reduce_scatter));
  add(time.by_collective, "tp/all_reduce", micro_batches * whole.wait(Wait::tp_all_reduce));
  add(time.by_collective, context_collective(problem_.context), micro_batches * whole.wait(Wait::cp));
  add(time.by_collective, "ep/all_to_all", micro_batches * whole.wait(Wait::ep));
  add(time.by_collective, "host/offload", micro_batches * whole.wait(Wait::offload));
  add(time.by_collective, "host/reload", micro_batches * whole.wait(Wait::reload));
  const DataTime& data = rank.data;
  const std::string shard = used_axes(candidate, mesh::shard_axes);
  const std::string all = used_axes(candidate, mesh::loss_axes);
  add(time.by_collective, shard + "/all_gather",
      micro_batches * (data.gather_forward.exposed + data.gather_backward.exposed) +
          data.gather_updated.exposed);
  add(time.by_collective, candidate.zero == 0 ? all + "/all_reduce" : shard + "/reduce_scatter",
      micro_batches * data.reduce_each.exposed + data.reduce_last.exposed);
  add(time.by_collective, "dp_replicate/all_reduce", data.replicate.exposed);
}

/// Input, checkpoints and what a step does once; then the sum and the rates.
void TimeModel::State::add_rest(const Candidate& candidate, StepTime& time) {
  const double tokens = real(problem_.global_batch) * real(problem_.seq_len);
  const double busy = time.compute + time.exposed + time.bubble + time.optimizer + time.other;
  time.other += rates_.step_seconds + straggling() * busy;
  const double worked = busy * (1 + straggling()) + rates_.step_seconds;
  if (problem_.cluster.input_rate > 0) {
    time.input = std::max(0.0, tokens / problem_.cluster.input_rate - worked);
  }
  if (problem_.checkpoint_every > 0 && problem_.cluster.storage_bandwidth > 0) {
    const double bytes =
        14 * real(problem_.model.parameter_count());  // 16-bit values, float32 master and moments
    time.checkpoint = bytes / problem_.cluster.storage_bandwidth / real(problem_.checkpoint_every);
  }
  time.seconds =
      time.compute + time.exposed + time.bubble + time.optimizer + time.input + time.checkpoint + time.other;
  time.tokens_per_second_per_device = tokens / time.seconds / real(candidate.mesh.world());
  time.mfu = time.tokens_per_second_per_device * utilization_of_one_token();
}

double TimeModel::State::least_seconds(const Candidate& candidate) {
  return bound(candidate, tables_.of(candidate));
}

double TimeModel::State::least_compute_seconds(const Candidate& candidate) {
  return bound(candidate, tables_.alone(candidate));
}

double TimeModel::State::bound(const Candidate& candidate, const WorkTable& table) {
  const bool any_cut = memory_ && candidate.mesh.pp > 1;
  const auto [pipeline, held] =
      any_cut ? least_of_any_cut(candidate, table) : least_pipeline(candidate, table);
  const double sharers = candidate.zero > 0 ? real(candidate.mesh.cp * candidate.mesh.dp_shard) : 1;
  const double updated = problem_.adapter.rank > 0 ? 0 : held / sharers;
  const double update = optimizer_seconds(candidate, rates_, updated);
  return (rates_.step_seconds + (pipeline + update) * (1 + straggling())) * least_slack;
}

/// Every rank waits for the first micro-batch to come to it, works on all of them, and (unless weight
/// gradients are put off) sees the gradients of its last one go back to the first rank.
TimeModel::State::LeastWork TimeModel::State::least_pipeline(const Candidate& candidate,
                                                             const WorkTable& table) {
  const schedule::Shape shape = schedule_shape(problem_, candidate);
  const std::vector<layout::Range>& cut = stages(candidate);
  by_rank_.assign(static_cast<std::size_t>(shape.ranks), Totals());
  for (std::int64_t stage = 0; stage < shape.stages(); ++stage) {
    by_rank_[static_cast<std::size_t>(shape.rank_of(stage))] += table.totals(stage_of(shape, cut, stage));
  }
  const bool split = splits_backward(problem_, candidate);
  const double micro_batches = real(shape.micro_batches);
  const double host = real(shape.chunks) * rates_.micro_batch_seconds;
  LeastWork least{.pipeline = 0, .held = by_rank_.front().dense};
  for (std::int64_t rank = 0; rank < shape.ranks; ++rank) {
    const Totals& own = by_rank_[static_cast<std::size_t>(rank)];
    const Stage ahead{.layers = {0, cut[static_cast<std::size_t>(rank)].start}, .first = true};
    const Totals before = table.totals(ahead);
    const double way = before.forward + (split ? 0 : before.backward());
    least.pipeline = std::max(least.pipeline, micro_batches * (own.whole() + host) + (rank == 0 ? 0 : way));
    least.held = std::min(least.held, own.dense);
  }
  return least;
}

/// However layers are cut, one rank does the mean of all work, and the last one the head's.
TimeModel::State::LeastWork TimeModel::State::least_of_any_cut(const Candidate& candidate,
                                                               const WorkTable& table) const {
  const schedule::Shape shape = schedule_shape(problem_, candidate);
  const Totals all = table.totals({.layers = {0, problem_.model.layers}, .first = true, .last = true});
  const Totals head = table.totals({.layers = {0, 0}, .first = false, .last = true});
  const double host = real(shape.chunks) * rates_.micro_batch_seconds;
  const double busiest = std::max(all.whole() / real(shape.ranks), head.whole());
  return {.pipeline = real(shape.micro_batches) * (busiest + host), .held = 0};
}

TimeModel::TimeModel(const Problem& problem, const Constants& constants)
    : state_(std::make_unique<State>(problem, constants)) {}
TimeModel::~TimeModel() = default;
TimeModel::TimeModel(TimeModel&&) noexcept = default;

StepTime TimeModel::step(const Candidate& candidate) const {
  return state_->step(candidate);
}

double TimeModel::least_seconds(const Candidate& candidate) const {
  return state_->least_seconds(candidate);
}

double TimeModel::least_compute_seconds(const Candidate& candidate) const {
  return state_->least_compute_seconds(candidate);
}

}  // namespace ndmesh::plan
