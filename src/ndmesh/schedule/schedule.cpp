#include "ndmesh/schedule/schedule.h"

#include <algorithm>

#include "ndmesh/base/error.h"
#include "ndmesh/schedule/order.h"

namespace ndmesh::schedule {

std::int64_t Shape::stage_of(std::int64_t rank, std::int64_t chunk) const {
  if (kind == Kind::zb_v && chunk == 1) return 2 * ranks - 1 - rank;
  return chunk * ranks + rank;
}

std::int64_t Shape::rank_of(std::int64_t stage) const {
  if (kind == Kind::zb_v && stage >= ranks) return 2 * ranks - 1 - stage;
  return stage % ranks;
}

Schedule make_schedule(const Shape& shape) {
  Problems problems;
  problems.add_all(problems_of(shape));
  problems.raise();
  std::vector<std::vector<Action>> actions;
  for (std::int64_t rank = 0; rank < shape.ranks; ++rank) actions.push_back(compute_order(shape, rank));
  Schedule schedule = {shape, with_messages(shape, actions)};
  for (std::vector<Action>& rank : schedule.ranks) rank.push_back({ActionKind::optimizer, 0, 0});
  return schedule;
}

Schedule make_forward_schedule(const Shape& shape) {
  Problems problems;
  problems.add_all(size_problems(shape));
  problems.raise();
  std::vector<Action> forwards;
  for (std::int32_t chunk = 0; chunk < shape.chunks; ++chunk) {
    for (std::int32_t m = 0; m < shape.micro_batches; ++m) {
      forwards.push_back({ActionKind::forward, chunk, m});
    }
  }
  const std::vector<std::vector<Action>> ranks(static_cast<std::size_t>(shape.ranks), forwards);
  return {shape, with_messages(shape, ranks)};
}

std::int64_t peak_in_flight(const Shape& shape, std::int64_t rank) {
  if (shape.ranks == 1) return 1;
  const std::int64_t count = shape.micro_batches;
  switch (shape.kind) {
    case Kind::gpipe:
      return count;
    case Kind::one_f_one_b:
      return std::min(count, shape.ranks - rank);
    case Kind::interleaved:
      return std::min(shape.chunks * count, warm_up(shape, rank) + 1);
    case Kind::zb_h1:  // weight gradients lag by the micro-batches that 1f1b would not hold
      return std::min(count, shape.ranks);
    case Kind::zb_v:
      return std::min(count, 2 * shape.ranks - 1 - rank) + std::min(count, rank + 1);
  }
  return count;
}

}  // namespace ndmesh::schedule
