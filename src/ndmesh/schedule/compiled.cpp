#include "ndmesh/schedule/compiled.h"

#include <algorithm>
#include <limits>
#include <list>

#include "ndmesh/base/error.h"
#include "ndmesh/schedule/order.h"

namespace ndmesh::schedule {
namespace {

constexpr std::size_t most_kept_steps = std::size_t{1} << 20;
constexpr std::size_t most_kept_shapes = 256;
constexpr std::uint32_t not_done = std::numeric_limits<std::uint32_t>::max();

/// Puts the actions of all ranks into one order in which each stands behind what it waits for.
class Compiler {
 public:
  explicit Compiler(const Shape& shape)
      : shape_(shape),
        next_(static_cast<std::size_t>(shape.ranks), 0),
        done_(2 * static_cast<std::size_t>(shape.stages() * shape.micro_batches), not_done) {
    for (std::int64_t rank = 0; rank < shape.ranks; ++rank) {
      actions_.push_back(compute_order(shape, rank));
      steps_ += actions_.back().size();
    }
    order_.ranks = shape.ranks;
    order_.steps.reserve(steps_);
    order_.micro_batches.reserve(steps_);
  }

  /// Ranks in turn, each as far as it can go.
  CompiledOrder order() {
    while (order_.steps.size() < steps_) {
      const std::size_t before = order_.steps.size();
      for (std::int64_t rank = 0; rank < shape_.ranks; ++rank) advance(rank);
      if (order_.steps.size() == before) throw std::logic_error("a generated schedule waits for itself");
    }
    return std::move(order_);
  }

 private:
  std::size_t slot(bool forward, std::int64_t stage, std::int32_t micro_batch) const {
    return static_cast<std::size_t>((2 * stage + (forward ? 0 : 1)) * shape_.micro_batches + micro_batch);
  }

  /// Where the step stands that `action` on `stage` waits for, beside those of its rank; not_done while it is
  /// still to come.
  std::uint32_t awaited(const Action& action, std::int64_t stage) const {
    const auto none = static_cast<std::uint32_t>(steps_);
    if (action.kind == ActionKind::weight_grad) return none;
    const bool forward = action.kind == ActionKind::forward;
    if (forward && stage == 0) return none;
    if (!forward && stage == shape_.stages() - 1) return done_[slot(true, stage, action.micro_batch)];
    return done_[slot(forward, stage + (forward ? -1 : 1), action.micro_batch)];
  }

  void advance(std::int64_t rank) {
    const auto r = static_cast<std::size_t>(rank);
    for (; next_[r] < actions_[r].size(); ++next_[r]) {
      const Action& action = actions_[r][next_[r]];
      const std::int64_t stage = shape_.stage_of(rank, action.chunk);
      const std::uint32_t after = awaited(action, stage);
      if (after == not_done) return;
      append(action, stage, after);
    }
  }

  void append(const Action& action, std::int64_t stage, std::uint32_t after) {
    const bool forward = action.kind == ActionKind::forward;
    const bool weights = action.kind == ActionKind::weight_grad;
    const std::int64_t pass = forward ? 0 : weights ? 2 : 1;
    if (!weights)
      done_[slot(forward, stage, action.micro_batch)] = static_cast<std::uint32_t>(order_.steps.size());
    if (pass == 1) order_.backward = action.kind;
    order_.steps.push_back({.after = after,
                            .cost = static_cast<std::uint32_t>(pass * shape_.stages() + stage),
                            .rank = static_cast<std::uint32_t>(shape_.rank_of(stage))});
    order_.micro_batches.push_back(action.micro_batch);
  }

  const Shape& shape_;
  std::vector<std::vector<Action>> actions_;
  std::size_t steps_ = 0;
  std::vector<std::size_t> next_;    ///< by rank, of its actions
  std::vector<std::uint32_t> done_;  ///< by slot, where the step stands
  CompiledOrder order_;
};

/// The shapes used last, the latest in front.
class Cache {
 public:
  std::shared_ptr<const CompiledOrder> find(const Shape& shape) {
    const auto found = std::find_if(entries_.begin(), entries_.end(),
                                    [&](const Entry& entry) { return entry.shape == shape; });
    if (found == entries_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, found);
    return found->order;
  }

  void keep(const Shape& shape, const std::shared_ptr<const CompiledOrder>& order) {
    if (order->steps.size() > most_kept_steps) return;
    entries_.push_front({shape, order});
    steps_ += order->steps.size();
    while (steps_ > most_kept_steps || entries_.size() > most_kept_shapes) {
      steps_ -= entries_.back().order->steps.size();
      entries_.pop_back();
    }
  }

 private:
  struct Entry {
    Shape shape;
    std::shared_ptr<const CompiledOrder> order;
  };
  std::list<Entry> entries_;
  std::size_t steps_ = 0;  ///< of all entries
};

}  // namespace

std::shared_ptr<const CompiledOrder> compiled(const Shape& shape) {
  thread_local Cache cache;
  if (auto order = cache.find(shape)) return order;
  Problems problems;
  problems.add_all(problems_of(shape));
  problems.raise();
  auto order = std::make_shared<const CompiledOrder>(Compiler(shape).order());
  cache.keep(shape, order);
  return order;
}

}  // namespace ndmesh::schedule
