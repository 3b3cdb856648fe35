#include <fmt/format.h>

#include <algorithm>

#include "ndmesh/schedule/order.h"
#include "ndmesh/schedule/schedule.h"

namespace ndmesh::schedule {
namespace {

constexpr std::size_t most_reported = 20;
constexpr std::int64_t nowhere = -1;

/// Kinds that name a chunk and a micro-batch, each at most once on its rank.
constexpr std::size_t once_kinds = 8;
static_assert(static_cast<std::size_t>(ActionKind::receive_backward) + 1 == once_kinds);

bool is_sharding(ActionKind kind) {
  return kind == ActionKind::unshard || kind == ActionKind::reshard || kind == ActionKind::reduce;
}

bool reads_parameters(ActionKind kind) {
  return kind == ActionKind::forward || kind == ActionKind::backward || kind == ActionKind::input_grad;
}

bool is_once_kind(ActionKind kind) {
  return static_cast<std::size_t>(kind) < once_kinds;
}

std::string text_of(const Action& action) {
  return fmt::format("{} of chunk {}, micro-batch {}", name_of(action.kind), action.chunk,
                     action.micro_batch);
}

class Report {
 public:
  void add(std::string defect) {
    if (list_.size() < most_reported) list_.push_back(std::move(defect));
  }
  bool full() const { return list_.size() == most_reported; }
  bool empty() const { return list_.empty(); }
  std::vector<std::string> take() { return std::move(list_); }

 private:
  std::vector<std::string> list_;
};

/// What one rank does by itself: everything once, and in order.
class RankCheck {
 public:
  RankCheck(const Schedule& schedule, std::int64_t rank, Report& report)
      : shape_(schedule.shape),
        rank_(rank),
        actions_(schedule.ranks[static_cast<std::size_t>(rank)]),
        report_(report),
        at_(once_kinds * static_cast<std::size_t>(shape_.chunks * shape_.micro_batches), nowhere) {}

  void run() {
    for (std::size_t i = 0; i < actions_.size() && !report_.full(); ++i) place(i);
    check_optimizer();
    check_sharding();
    for (std::int64_t chunk = 0; chunk < shape_.chunks; ++chunk) {
      for (std::int64_t m = 0; m < shape_.micro_batches && !report_.full(); ++m) check_pass(chunk, m);
    }
  }

 private:
  std::int64_t& at(ActionKind kind, std::int64_t chunk, std::int64_t micro_batch) {
    return at_[static_cast<std::size_t>(
        (static_cast<std::int64_t>(kind) * shape_.chunks + chunk) * shape_.micro_batches + micro_batch)];
  }

  void place(std::size_t index) {
    const Action& action = actions_[index];
    const auto add = [&](const std::string& defect) {
      report_.add(fmt::format("rank {}, action {}: {}", rank_, index, defect));
    };
    if (action.kind == ActionKind::optimizer || is_sharding(action.kind)) return;
    if (action.kind > ActionKind::optimizer) {
      add(fmt::format("{} is no kind of action", static_cast<int>(action.kind)));
    } else if (!is_once_kind(action.kind)) {
      add(fmt::format(
          "{} is not built yet; allowed are compute, messages, unshard, reshard, reduce and optimizer",
          name_of(action.kind)));
    } else if (action.chunk < 0 || action.chunk >= shape_.chunks || action.micro_batch < 0 ||
               action.micro_batch >= shape_.micro_batches) {
      add(fmt::format("{}; there are {} chunks and {} micro-batches", text_of(action), shape_.chunks,
                      shape_.micro_batches));
    } else if (at(action.kind, action.chunk, action.micro_batch) != nowhere) {
      add(text_of(action) + " a second time");
    } else {
      at(action.kind, action.chunk, action.micro_batch) = static_cast<std::int64_t>(index);
    }
  }

  void check_optimizer() {
    const auto is_optimizer = [](const Action& action) { return action.kind == ActionKind::optimizer; };
    const auto count = std::count_if(actions_.begin(), actions_.end(), is_optimizer);
    if (count != 1)
      report_.add(fmt::format("rank {}: {} optimizer actions instead of 1", rank_, count));
    else if (!is_optimizer(actions_.back()))
      report_.add(fmt::format("rank {}: optimizer is not the last action", rank_));
  }

  void check_sharding() {
    for (const Action& action : actions_) {
      if (is_sharding(action.kind) && (action.chunk < 0 || action.chunk >= shape_.chunks)) {
        report_.add(fmt::format("rank {}: {} of chunk {}; there are {} chunks", rank_, name_of(action.kind),
                                action.chunk, shape_.chunks));
        return;
      }
    }
    for (std::int64_t chunk = 0; chunk < shape_.chunks; ++chunk) {
      check_apart(chunk, ActionKind::unshard, /*before=*/true, reads_parameters);
      check_apart(chunk, ActionKind::reshard, /*before=*/false, reads_parameters);
      check_apart(chunk, ActionKind::reduce, /*before=*/false, is_compute);
    }
  }

  /// At most one `kind` of the chunk, before (or behind) all its actions that `others` picks.
  template <class Test>
  void check_apart(std::int64_t chunk, ActionKind kind, bool before, const Test& others) {
    const auto is_own = [&](const Action& action) { return action.kind == kind && action.chunk == chunk; };
    const auto is_other = [&](const Action& action) { return others(action.kind) && action.chunk == chunk; };
    const auto own = std::find_if(actions_.begin(), actions_.end(), is_own);
    if (own == actions_.end()) return;
    if (std::find_if(own + 1, actions_.end(), is_own) != actions_.end())
      report_.add(fmt::format("rank {}: {} of chunk {} a second time", rank_, name_of(kind), chunk));
    const auto from = before ? actions_.begin() : own, to = before ? own : actions_.end();
    const auto wrong = std::find_if(from, to, is_other);
    if (wrong != to)
      report_.add(fmt::format("rank {}: {} of chunk {} comes {} {}", rank_, name_of(kind), chunk,
                              before ? "behind" : "before", text_of(*wrong)));
  }

  void check_pass(std::int64_t chunk, std::int64_t micro_batch) {
    const auto has = [&](ActionKind kind) { return at(kind, chunk, micro_batch) != nowhere; };
    const auto pass = [&] {
      return fmt::format("rank {}, chunk {}, micro-batch {}: ", rank_, chunk, micro_batch);
    };
    const bool whole = has(ActionKind::backward);
    const bool split = has(ActionKind::input_grad) && has(ActionKind::weight_grad);
    const bool half = has(ActionKind::input_grad) || has(ActionKind::weight_grad);
    if (!has(ActionKind::forward)) report_.add(pass() + "no forward");
    if (whole && half) report_.add(pass() + "backward, and input_grad or weight_grad beside it");
    if (!whole && !split) report_.add(pass() + "neither backward nor both of input_grad and weight_grad");
    const ActionKind back = whole ? ActionKind::backward : ActionKind::input_grad;
    check_order(ActionKind::forward, back, chunk, micro_batch);
    check_order(ActionKind::input_grad, ActionKind::weight_grad, chunk, micro_batch);
    const std::int64_t stage = shape_.stage_of(rank_, chunk);
    check_message(ActionKind::receive_forward, crosses(stage - 1), chunk, micro_batch);
    check_order(ActionKind::receive_forward, ActionKind::forward, chunk, micro_batch);
    check_message(ActionKind::send_forward, crosses(stage), chunk, micro_batch);
    check_order(ActionKind::forward, ActionKind::send_forward, chunk, micro_batch);
    check_message(ActionKind::receive_backward, crosses(stage), chunk, micro_batch);
    check_order(ActionKind::receive_backward, back, chunk, micro_batch);
    check_message(ActionKind::send_backward, crosses(stage - 1), chunk, micro_batch);
    check_order(back, ActionKind::send_backward, chunk, micro_batch);
  }

  /// Whether messages pass between `stage` and the next.
  bool crosses(std::int64_t stage) const {
    return stage >= 0 && stage + 1 < shape_.stages() && shape_.rank_of(stage) != shape_.rank_of(stage + 1);
  }

  void check_message(ActionKind kind, bool wanted, std::int64_t chunk, std::int64_t micro_batch) {
    if ((at(kind, chunk, micro_batch) != nowhere) == wanted) return;
    report_.add(fmt::format("rank {}, chunk {}, micro-batch {}: {} {}", rank_, chunk, micro_batch,
                            name_of(kind), wanted ? "is missing" : "has no other rank at its other end"));
  }

  void check_order(ActionKind first, ActionKind second, std::int64_t chunk, std::int64_t micro_batch) {
    const std::int64_t before = at(first, chunk, micro_batch), after = at(second, chunk, micro_batch);
    if (before == nowhere || after == nowhere || before < after) return;
    report_.add(fmt::format("rank {}, chunk {}, micro-batch {}: {} comes before {}", rank_, chunk,
                            micro_batch, name_of(second), name_of(first)));
  }

  const Shape& shape_;
  std::int64_t rank_;
  const std::vector<Action>& actions_;
  Report& report_;
  std::vector<std::int64_t> at_;  ///< index of an action of a kind, chunk and micro-batch
};

/// A message as both ends can name it.
struct Message {
  bool forward = true;
  std::int64_t stage = 0;  ///< that receives it
  std::int64_t micro_batch = 0;
  bool operator==(const Message&) const = default;
};

bool is_send(ActionKind kind) {
  return kind == ActionKind::send_forward || kind == ActionKind::send_backward;
}

bool is_receive(ActionKind kind) {
  return kind == ActionKind::receive_forward || kind == ActionKind::receive_backward;
}

Message message_of(const Shape& shape, std::int64_t rank, const Action& action) {
  const bool forward = action.kind == ActionKind::send_forward || action.kind == ActionKind::receive_forward;
  const std::int64_t stage = shape.stage_of(rank, action.chunk);
  const std::int64_t step = is_send(action.kind) ? (forward ? 1 : -1) : 0;
  return {forward, stage + step, action.micro_batch};
}

/// The rank at the other end of a send or receive.
std::int64_t peer_of(const Shape& shape, std::int64_t rank, const Action& action) {
  const Message message = message_of(shape, rank, action);
  if (is_send(action.kind)) return shape.rank_of(message.stage);
  return shape.rank_of(message.stage + (message.forward ? -1 : 1));
}

/// What `rank` sends to or receives from `peer`, in order.
std::vector<Message> messages_with(const Schedule& schedule, std::int64_t rank, std::int64_t peer,
                                   bool sent) {
  std::vector<Message> messages;
  for (const Action& action : schedule.ranks[static_cast<std::size_t>(rank)]) {
    if ((sent ? is_send(action.kind) : is_receive(action.kind)) &&
        peer_of(schedule.shape, rank, action) == peer)
      messages.push_back(message_of(schedule.shape, rank, action));
  }
  return messages;
}

std::vector<std::int64_t> peers_of(const Shape& shape, std::int64_t rank) {
  std::vector<std::int64_t> peers;
  for (std::int64_t chunk = 0; chunk < shape.chunks; ++chunk) {
    for (const std::int64_t step : {-1, 1}) {
      const std::int64_t stage = shape.stage_of(rank, chunk) + step;
      if (stage < 0 || stage == shape.stages()) continue;
      const std::int64_t peer = shape.rank_of(stage);
      if (peer != rank && std::find(peers.begin(), peers.end(), peer) == peers.end()) peers.push_back(peer);
    }
  }
  return peers;
}

/// Sends and receives of each link in the same order. The ranks by themselves are sound, so as many are sent as
/// received.
void check_links(const Schedule& schedule, Report& report) {
  const auto text = [](const Message& message) {
    return fmt::format("{} of micro-batch {} for stage {}", message.forward ? "activations" : "gradients",
                       message.micro_batch, message.stage);
  };
  for (std::int64_t from = 0; from < schedule.shape.ranks; ++from) {
    for (const std::int64_t to : peers_of(schedule.shape, from)) {
      const std::vector<Message> sent = messages_with(schedule, from, to, true);
      const std::vector<Message> received = messages_with(schedule, to, from, false);
      const auto [wrong, other] = std::mismatch(sent.begin(), sent.end(), received.begin(), received.end());
      if (wrong == sent.end()) continue;
      report.add(fmt::format("link from rank {} to rank {}: message {} is {}, but {} are received", from, to,
                             wrong - sent.begin(), text(*wrong), text(*other)));
    }
  }
}

/// Runs the schedule without times, every receive waiting for its message.
class DryRun {
 public:
  explicit DryRun(const Schedule& schedule)
      : schedule_(schedule),
        shape_(schedule.shape),
        next_(schedule.ranks.size(), 0),
        done_(2 * static_cast<std::size_t>(shape_.stages() * shape_.micro_batches), false),
        sent_(done_.size(), false) {}

  void run(Report& report) {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::int64_t rank = 0; rank < shape_.ranks; ++rank) moved = advance(rank) || moved;
    }
    for (std::int64_t rank = 0; rank < shape_.ranks; ++rank) {
      const std::size_t index = next_[static_cast<std::size_t>(rank)];
      if (index == actions(rank).size()) continue;
      report.add(
          fmt::format("rank {} waits for ever in action {}, {}", rank, index, text_of(actions(rank)[index])));
    }
  }

 private:
  const std::vector<Action>& actions(std::int64_t rank) const {
    return schedule_.ranks[static_cast<std::size_t>(rank)];
  }

  std::size_t slot(bool forward, std::int64_t stage, std::int64_t micro_batch) const {
    return static_cast<std::size_t>((2 * stage + (forward ? 0 : 1)) * shape_.micro_batches + micro_batch);
  }

  bool advance(std::int64_t rank) {
    std::size_t& next = next_[static_cast<std::size_t>(rank)];
    const std::size_t before = next;
    while (next < actions(rank).size() && perform(rank, actions(rank)[next])) ++next;
    return next != before;
  }

  /// False when `action` has to wait.
  bool perform(std::int64_t rank, const Action& action) {
    if (action.kind == ActionKind::optimizer || action.kind == ActionKind::weight_grad ||
        is_sharding(action.kind))
      return true;
    if (is_send(action.kind) || is_receive(action.kind)) {
      const Message message = message_of(shape_, rank, action);
      const std::size_t at = slot(message.forward, message.stage, message.micro_batch);
      if (is_send(action.kind)) sent_[at] = true;
      return sent_[at];
    }
    const bool forward = action.kind == ActionKind::forward;
    const std::int64_t stage = shape_.stage_of(rank, action.chunk);
    const std::int64_t before = stage + (forward ? -1 : 1);
    const bool within = before >= 0 && before < shape_.stages() && shape_.rank_of(before) == rank;
    if (within && !done_[slot(forward, before, action.micro_batch)]) return false;
    done_[slot(forward, stage, action.micro_batch)] = true;
    return true;
  }

  const Schedule& schedule_;
  const Shape& shape_;
  std::vector<std::size_t> next_;
  std::vector<bool> done_;  ///< passes whose result another chunk of the rank may take
  std::vector<bool> sent_;  ///< by the stage that receives
};

}  // namespace

std::vector<std::string> defects(const Schedule& schedule) {
  const Shape& shape = schedule.shape;
  std::vector<std::string> problems = size_problems(shape);
  if (!problems.empty()) return problems;
  if (static_cast<std::int64_t>(schedule.ranks.size()) != shape.ranks)
    return {fmt::format("{} ranks have actions, but mesh.pp_size is {}", schedule.ranks.size(), shape.ranks)};
  Report report;
  for (std::int64_t rank = 0; rank < shape.ranks; ++rank) RankCheck(schedule, rank, report).run();
  if (report.empty()) check_links(schedule, report);
  if (report.empty()) DryRun(schedule).run(report);
  return report.take();
}

}  // namespace ndmesh::schedule
