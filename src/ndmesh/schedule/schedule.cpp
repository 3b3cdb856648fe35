#include "ndmesh/schedule/schedule.h"

#include <algorithm>
#include <numeric>

#include "ndmesh/base/error.h"
#include "ndmesh/schedule/interleaving.h"
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

namespace {

using Actions = std::vector<Action>;

/// Behind the last action of the chunk that `test` picks.
template <class Test>
Actions::iterator behind_last(Actions& actions, std::int32_t chunk, const Test& test) {
  return std::find_if(actions.rbegin(), actions.rend(),
                      [&](const Action& action) { return action.chunk == chunk && test(action.kind); })
      .base();
}

void add_gathers(Actions& actions, std::int32_t chunk) {
  const auto reads = [](ActionKind kind) {
    return kind == ActionKind::forward || kind == ActionKind::backward || kind == ActionKind::input_grad;
  };
  actions.insert(behind_last(actions, chunk, reads), {ActionKind::reshard, chunk, 0});
  const auto first = std::find_if(actions.begin(), actions.end(), [&](const Action& action) {
    return action.chunk == chunk && action.kind <= ActionKind::receive_backward;
  });
  actions.insert(first, {ActionKind::unshard, chunk, 0});
}

/// Chunks in the order in which their backwards end.
std::vector<std::int32_t> chunks_by_end(Actions& actions, std::int64_t count) {
  const auto end = [&](std::int32_t chunk) { return behind_last(actions, chunk, is_compute); };
  std::vector<std::int32_t> chunks(static_cast<std::size_t>(count));
  std::iota(chunks.begin(), chunks.end(), 0);
  std::sort(chunks.begin(), chunks.end(), [&](auto a, auto b) { return end(a) < end(b); });
  return chunks;
}

/// zb-v is fullest when its first backward is about to begin, or, where there are micro-batches enough, when the forward
/// of chunk 0 behind that has ended.
std::int64_t v_shaped_peak(const Shape& shape, std::int64_t rank, std::span<const std::int64_t> weights) {
  const std::int64_t count = shape.micro_batches;
  const std::int64_t behind = 2 * shape.ranks - 1 - rank;
  const std::int64_t before = std::min(count, behind) * weights[0] + std::min(count, rank + 1) * weights[1];
  const std::int64_t after = count > behind ? (behind + 1) * weights[0] + rank * weights[1] : 0;
  return std::max(before, after);
}

/// Of the first `passes` passes, dealt out in rounds of `size` micro-batches a chunk, how many are chunk `turn`'s.
std::int64_t passes_of(std::int64_t passes, std::int64_t turn, std::int64_t size, std::int64_t chunks) {
  const std::int64_t round = size * chunks;
  return passes / round * size + std::clamp<std::int64_t>(passes % round - turn * size, 0, size);
}

/// Behind each forward of the steady part, with `done` backwards: what is in flight is linear in `done` as long as neither
/// forwards nor backwards go on to another chunk, and repeats after a round. So it is most where one of them does, or at
/// an end.
std::int64_t interleaved_peak(const Shape& shape, std::int64_t rank, std::span<const std::int64_t> weights) {
  const std::int64_t passes = shape.chunks * shape.micro_batches;
  const std::int64_t size = shape.micro_batches / interleaving_rounds(shape.micro_batches, shape.ranks);
  const std::int64_t ahead = std::min(passes, warm_up(shape, rank) + 1);
  const std::int64_t last = std::min(passes - ahead, size * shape.chunks - 1);
  const auto weight_behind = [&](std::int64_t done) {
    std::int64_t sum = 0;
    for (std::int64_t chunk = 0; chunk < shape.chunks; ++chunk) {
      const std::int64_t held = passes_of(ahead + done, chunk, size, shape.chunks) -
                                passes_of(done, shape.chunks - 1 - chunk, size, shape.chunks);
      sum += held * weights[static_cast<std::size_t>(chunk)];
    }
    return sum;
  };
  std::int64_t most = std::max(weight_behind(0), weight_behind(last));
  for (std::int64_t turn = 0; turn <= last; turn += size) {
    most = std::max(most, weight_behind(turn));
    const std::int64_t forwards_turn =
        turn + (size - ahead % size) % size;  // ahead + done is a multiple of size
    if (forwards_turn <= last) most = std::max(most, weight_behind(forwards_turn));
  }
  return most;
}

}  // namespace

Schedule with_sharding(Schedule schedule, bool gathered) {
  for (Actions& actions : schedule.ranks) {
    const auto chunks = chunks_by_end(actions, schedule.shape.chunks);
    const bool updates = !actions.empty() && actions.back().kind == ActionKind::optimizer;
    for (const std::int32_t chunk : chunks) {
      actions.insert(actions.end() - (updates ? 1 : 0), {ActionKind::reduce, chunk, 0});
      if (gathered) add_gathers(actions, chunk);
    }
  }
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

std::int64_t peak_in_flight(const Shape& shape, std::int64_t rank, std::span<const std::int64_t> weights) {
  if (shape.chunks == 1 || shape.ranks == 1) return peak_in_flight(shape, rank) * weights[0];
  return shape.kind == Kind::zb_v ? v_shaped_peak(shape, rank, weights)
                                  : interleaved_peak(shape, rank, weights);
}

}  // namespace ndmesh::schedule
