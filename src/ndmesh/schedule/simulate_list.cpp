#include <algorithm>
#include <stdexcept>

#include "ndmesh/schedule/simulate.h"

namespace ndmesh::schedule {
namespace {

constexpr double never = -1;

/// Runs the lists of all ranks side by side, each as far as what it waits for has ended.
class ListRun {
 public:
  ListRun(const Schedule& schedule, std::span<const StageSeconds> stages)
      : schedule_(schedule),
        shape_(schedule.shape),
        stages_(stages),
        next_(schedule.ranks.size(), 0),
        free_(schedule.ranks.size(), 0.0),
        ends_(2 * static_cast<std::size_t>(shape_.stages() * shape_.micro_batches), never) {
    result_.busy.assign(schedule.ranks.size(), 0.0);
  }

  Simulation run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t rank = 0; rank < next_.size(); ++rank) {
        while (next_[rank] < schedule_.ranks[rank].size() && perform(rank)) {
          ++next_[rank];
          moved = true;
        }
      }
    }
    for (std::size_t rank = 0; rank < next_.size(); ++rank) {
      if (next_[rank] < schedule_.ranks[rank].size())
        throw std::invalid_argument("simulate_list: a rank waits for ever; a schedule with defects");
    }
    result_.seconds = *std::max_element(free_.begin(), free_.end());
    return std::move(result_);
  }

 private:
  double& end_of(bool forward, std::int64_t stage, std::int64_t micro_batch) {
    return ends_[static_cast<std::size_t>((2 * stage + (forward ? 0 : 1)) * shape_.micro_batches +
                                          micro_batch)];
  }

  /// False when what the action needs has not ended yet. Messages cost their receiver nothing.
  bool perform(std::size_t rank) {
    const Action& action = schedule_.ranks[rank][next_[rank]];
    if (!is_compute(action.kind)) return true;
    const auto here = static_cast<std::int64_t>(rank);
    const std::int64_t stage = shape_.stage_of(here, action.chunk);
    double start = free_[rank];
    if (action.kind != ActionKind::weight_grad) {
      const bool forward = action.kind == ActionKind::forward;
      const std::int64_t before = stage + (forward ? -1 : 1);
      if (before >= 0 && before < shape_.stages()) {
        const double end = end_of(forward, before, action.micro_batch);
        if (end == never) return false;
        const bool sent = shape_.rank_of(before) != here;
        const std::int64_t lower = std::min(before, stage);
        start = std::max(start, end + (sent ? stages_[static_cast<std::size_t>(lower)].send : 0));
      }
    }
    finish(action, rank, stage, start);
    return true;
  }

  void finish(const Action& action, std::size_t rank, std::int64_t stage, double start) {
    const StageSeconds& cost = stages_[static_cast<std::size_t>(stage)];
    const double seconds = action.kind == ActionKind::forward       ? cost.forward
                           : action.kind == ActionKind::weight_grad ? cost.weight_grad
                           : action.kind == ActionKind::input_grad  ? cost.input_grad
                                                                    : cost.input_grad + cost.weight_grad;
    free_[rank] = start + seconds;
    result_.busy[rank] += seconds;
    if (action.kind != ActionKind::weight_grad)
      end_of(action.kind == ActionKind::forward, stage, action.micro_batch) = free_[rank];
    result_.intervals.push_back({.kind = action.kind,
                                 .rank = static_cast<std::int32_t>(rank),
                                 .chunk = action.chunk,
                                 .micro_batch = action.micro_batch,
                                 .start = start,
                                 .end = free_[rank]});
  }

  const Schedule& schedule_;
  const Shape& shape_;
  std::span<const StageSeconds> stages_;
  std::vector<std::size_t> next_;
  std::vector<double> free_;  ///< by rank
  std::vector<double> ends_;  ///< of forwards, and of backwards or input gradients, by stage and micro-batch
  Simulation result_;
};

}  // namespace

Simulation simulate_list(const Schedule& schedule, std::span<const StageSeconds> stages) {
  if (static_cast<std::int64_t>(stages.size()) != schedule.shape.stages())
    throw std::invalid_argument("simulate_list: as many times as stages are needed");
  return ListRun(schedule, stages).run();
}

}  // namespace ndmesh::schedule
