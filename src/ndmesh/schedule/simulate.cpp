#include "ndmesh/schedule/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "ndmesh/schedule/compiled.h"

namespace ndmesh::schedule {
namespace {

/// What a step costs, by Step::cost.
struct Cost {
  double seconds = 0;
  double transfer = 0;  ///< of the message it waits for
};

double transfer_between(const Shape& shape, std::span<const StageSeconds> stages, std::int64_t lower) {
  if (lower < 0 || lower + 1 >= shape.stages() || shape.rank_of(lower) == shape.rank_of(lower + 1)) return 0;
  return stages[static_cast<std::size_t>(lower)].send;
}

/// One for each kind of pass and stage, as CompiledOrder numbers them.
void fill_costs(const Shape& shape, std::span<const StageSeconds> stages, std::vector<Cost>& costs) {
  const std::size_t count = stages.size();
  const bool split = shape.splits_backward();
  costs.resize(pass_kinds * count);
  for (std::size_t s = 0; s < count; ++s) {
    const StageSeconds& stage = stages[s];
    const auto index = static_cast<std::int64_t>(s);
    costs[s] = {stage.forward, transfer_between(shape, stages, index - 1)};
    costs[count + s] = {stage.input_grad + (split ? 0 : stage.weight_grad),
                        transfer_between(shape, stages, index)};
    costs[2 * count + s] = {stage.weight_grad, 0};
  }
}

/// Vectors that live from one simulation to the next.
struct Workspace {
  std::vector<Cost> costs;
  std::vector<double> ends;  ///< by step; 0 for the step that nothing waits for
  std::vector<double> free;  ///< by rank, when it has done what it has
};

double run(const CompiledOrder& order, Workspace& work) {
  const Cost* const costs = work.costs.data();
  work.ends.resize(order.steps.size() + 1);
  work.ends.back() = 0;
  work.free.assign(static_cast<std::size_t>(order.ranks), 0);
  double* const ends = work.ends.data();
  double* const free = work.free.data();
  for (std::size_t i = 0; i < order.steps.size(); ++i) {
    const Step& step = order.steps[i];
    const Cost& cost = costs[step.cost];
    const double start = std::max(free[step.rank], ends[step.after] + cost.transfer);
    free[step.rank] = ends[i] = start + cost.seconds;
  }
  return *std::max_element(work.free.begin(), work.free.end());
}

std::vector<double> busy_seconds(const Shape& shape, std::span<const StageSeconds> stages) {
  std::vector<double> busy(static_cast<std::size_t>(shape.ranks), 0.0);
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const auto rank = static_cast<std::size_t>(shape.rank_of(static_cast<std::int64_t>(s)));
    busy[rank] += static_cast<double>(shape.micro_batches) *
                  (stages[s].forward + stages[s].input_grad + stages[s].weight_grad);
  }
  return busy;
}

/// The steps of the simulation that `work` holds.
std::vector<Interval> intervals_of(const Shape& shape, const CompiledOrder& order, Workspace& work) {
  const ActionKind kinds[pass_kinds] = {ActionKind::forward, order.backward, ActionKind::weight_grad};
  const auto stages = static_cast<std::uint32_t>(shape.stages());
  std::fill(work.free.begin(), work.free.end(), 0.0);
  std::vector<Interval> intervals;
  intervals.reserve(order.steps.size());
  for (std::size_t i = 0; i < order.steps.size(); ++i) {
    const Step& step = order.steps[i];
    const double start =
        std::max(work.free[step.rank], work.ends[step.after] + work.costs[step.cost].transfer);
    work.free[step.rank] = work.ends[i];
    intervals.push_back({.kind = kinds[step.cost / stages],
                         .rank = static_cast<std::int32_t>(step.rank),
                         .chunk = static_cast<std::int32_t>(shape.chunk_of(step.cost % stages)),
                         .micro_batch = order.micro_batches[i],
                         .start = start,
                         .end = work.ends[i]});
  }
  return intervals;
}

constexpr double rounding = 1e-12;  ///< of sums of the same seconds in another order

}  // namespace

double Simulation::bubble() const {
  if (seconds <= 0) return 0;
  const double sum = std::accumulate(busy.begin(), busy.end(), 0.0);
  const double waiting = 1 - sum / static_cast<double>(busy.size()) / seconds;
  return waiting > rounding ? waiting : 0;
}

Simulation simulate(const Shape& shape, std::span<const StageSeconds> stages, bool with_intervals) {
  const std::shared_ptr<const CompiledOrder> order = compiled(shape);
  if (static_cast<std::int64_t>(stages.size()) != shape.stages()) {
    throw std::invalid_argument(
        fmt::format("simulate: {} stages have no times, but {}", shape.stages(), stages.size()));
  }
  thread_local Workspace work;
  fill_costs(shape, stages, work.costs);
  Simulation result;
  result.seconds = run(*order, work);
  result.busy = busy_seconds(shape, stages);
  if (with_intervals) result.intervals = intervals_of(shape, *order, work);
  return result;
}

}  // namespace ndmesh::schedule
