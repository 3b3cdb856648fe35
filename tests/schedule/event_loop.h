#pragma once

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include "ndmesh/schedule/simulate.h"

namespace ndmesh::schedule {

/// Executes the actions of a schedule one by one, as they are written, with a table of what has arrived where:
/// nothing of the order, the costs or the placement that the simulation prepares.
class EventLoop {
 public:
  EventLoop(const Schedule& schedule, const std::vector<StageSeconds>& stages)
      : schedule_(schedule), stages_(stages), next_(schedule.ranks.size(), 0), free_(next_.size(), 0.0) {}

  /// Runs all that can run.
  bool finishes() {
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
      if (next_[rank] < schedule_.ranks[rank].size()) return false;
    }
    return true;
  }

  double seconds() const { return *std::max_element(free_.begin(), free_.end()); }

 private:
  using Key = std::tuple<bool, std::size_t, int>;  // forward, stage that waits, micro-batch

  std::size_t stage_of(std::size_t rank, int chunk) const {
    const auto ranks = static_cast<std::size_t>(schedule_.shape.ranks);
    if (schedule_.shape.kind == Kind::zb_v && chunk == 1) return 2 * ranks - rank - 1;
    return static_cast<std::size_t>(chunk) * ranks + rank;
  }

  bool perform(std::size_t rank) {
    const Action& action = schedule_.ranks[rank][next_[rank]];
    const std::size_t stage = stage_of(rank, action.chunk);
    const StageSeconds& costs = stages_[stage];
    const std::size_t last = stages_.size() - 1;
    const int m = action.micro_batch;
    switch (action.kind) {
      case ActionKind::forward:
        if (stage > 0 && !wait(rank, {true, stage, m})) return false;
        free_[rank] += costs.forward;
        if (stage < last) arrived_[{true, stage + 1, m}] = free_[rank];
        return true;
      case ActionKind::backward:
      case ActionKind::input_grad:
        if (stage < last && !wait(rank, {false, stage, m})) return false;
        free_[rank] += costs.input_grad + (action.kind == ActionKind::backward ? costs.weight_grad : 0);
        if (stage > 0) arrived_[{false, stage - 1, m}] = free_[rank];
        return true;
      case ActionKind::weight_grad:
        free_[rank] += costs.weight_grad;
        return true;
      case ActionKind::send_forward:
        sent_[{true, stage + 1, m}] = true;
        arrived_.at({true, stage + 1, m}) += costs.send;
        return true;
      case ActionKind::send_backward:
        sent_[{false, stage - 1, m}] = true;
        arrived_.at({false, stage - 1, m}) += stages_[stage - 1].send;
        return true;
      case ActionKind::receive_forward:
        return sent_.count({true, stage, m}) == 1;
      case ActionKind::receive_backward:
        return sent_.count({false, stage, m}) == 1;
      default:
        return action.kind == ActionKind::optimizer;
    }
  }

  bool wait(std::size_t rank, const Key& key) {
    const auto found = arrived_.find(key);
    if (found == arrived_.end()) return false;
    free_[rank] = std::max(free_[rank], found->second);
    return true;
  }

  const Schedule& schedule_;
  const std::vector<StageSeconds>& stages_;
  std::vector<std::size_t> next_;
  std::vector<double> free_;
  std::map<Key, double> arrived_;
  std::map<Key, bool> sent_;
};

}  // namespace ndmesh::schedule
