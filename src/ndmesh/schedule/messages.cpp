#include <algorithm>
#include <optional>

#include "ndmesh/schedule/order.h"

namespace ndmesh::schedule {
namespace {

/// The stage on another rank that waits for the result of `action` (step 1), or whose result it waits for
/// (step -1).
std::optional<std::int64_t> neighbour(const Shape& shape, std::int64_t rank, const Action& action,
                                      std::int64_t step) {
  if (action.kind == ActionKind::weight_grad) return std::nullopt;
  const std::int64_t stage =
      shape.stage_of(rank, action.chunk) + (action.kind == ActionKind::forward ? step : -step);
  if (stage < 0 || stage == shape.stages() || shape.rank_of(stage) == rank) return std::nullopt;
  return stage;
}

ActionKind send_of(const Action& action) {
  return action.kind == ActionKind::forward ? ActionKind::send_forward : ActionKind::send_backward;
}

/// The receive for a result of `action`, by the chunk that wants it.
Action receive_of(const Action& action, std::int64_t chunk) {
  return {
      action.kind == ActionKind::forward ? ActionKind::receive_forward : ActionKind::receive_backward,
      static_cast<std::int32_t>(chunk),
      action.micro_batch,
  };
}

/// What one rank receives from one other.
struct Link {
  std::int64_t from = 0;
  std::vector<Action> receives;  ///< in the order of sending
  std::size_t taken = 0;         ///< of `receives`
  std::vector<Action> early;     ///< taken before they are needed
};

/// The links into one rank. It has few neighbours, so they are looked through.
using Links = std::vector<Link>;

Link& link_from(Links& links, std::int64_t from) {
  const auto found =
      std::find_if(links.begin(), links.end(), [from](const Link& link) { return link.from == from; });
  if (found != links.end()) return *found;
  links.push_back({.from = from, .receives = {}, .taken = 0, .early = {}});
  return links.back();
}

/// By receiving rank.
std::vector<Links> links_of(const Shape& shape, const std::vector<std::vector<Action>>& actions) {
  std::vector<Links> links(actions.size());
  for (std::size_t r = 0; r < actions.size(); ++r) {
    const auto rank = static_cast<std::int64_t>(r);
    for (const Action& action : actions[r]) {
      const auto to = neighbour(shape, rank, action, 1);
      if (!to) continue;
      Links& into = links[static_cast<std::size_t>(shape.rank_of(*to))];
      link_from(into, rank).receives.push_back(receive_of(action, shape.chunk_of(*to)));
    }
  }
  return links;
}

/// Receives what the link brings up to `wanted`, unless that came earlier.
void receive(const Action& wanted, Link& link, std::vector<Action>& result) {
  const auto came = std::find(link.early.begin(), link.early.end(), wanted);
  if (came != link.early.end()) {
    link.early.erase(came);
    return;
  }
  while (link.taken < link.receives.size()) {
    const Action& next = link.receives[link.taken++];
    result.push_back(next);
    if (next == wanted) return;
    link.early.push_back(next);
  }
}

}  // namespace

std::vector<std::vector<Action>> with_messages(const Shape& shape,
                                               const std::vector<std::vector<Action>>& actions) {
  std::vector<Links> links = links_of(shape, actions);
  std::vector<std::vector<Action>> result(actions.size());
  for (std::size_t r = 0; r < actions.size(); ++r) {
    const auto rank = static_cast<std::int64_t>(r);
    for (const Action& action : actions[r]) {
      if (const auto from = neighbour(shape, rank, action, -1))
        receive(receive_of(action, action.chunk), link_from(links[r], shape.rank_of(*from)), result[r]);
      result[r].push_back(action);
      if (neighbour(shape, rank, action, 1))
        result[r].push_back({send_of(action), action.chunk, action.micro_batch});
    }
  }
  return result;
}

}  // namespace ndmesh::schedule
