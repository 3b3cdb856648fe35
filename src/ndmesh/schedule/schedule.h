#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ndmesh::schedule {

/// The pipeline schedules. 1F1B after PipeDream-Flush, interleaved after Megatron-LM, zero-bubble (ZB-H1,
/// ZB-V) after Qi et al.
enum class Kind { gpipe, one_f_one_b, interleaved, zb_h1, zb_v };

/// "gpipe", "1f1b", "interleaved", "zb-h1", "zb-v": as in pipeline.schedule.
std::string_view name_of(Kind kind);
Kind kind_from_name(std::string_view name);  // RequestError with the list
bool splits_backward(Kind kind);             ///< input and weight gradient are actions of their own

/// What a rank does. Compute actions name a chunk and a micro-batch; the others say what happens around them.
enum class ActionKind : std::uint8_t {
  forward,
  backward,      ///< both gradients
  input_grad,    ///< gradient of the chunk's input only
  weight_grad,   ///< gradient of the chunk's parameters only
  send_forward,  ///< activations to the next stage
  receive_forward,
  send_backward,  ///< gradients to the previous stage
  receive_backward,
  unshard,    ///< gather the chunk's parameters
  reshard,    ///< free them
  reduce,     ///< reduce the chunk's gradients over the data axes
  recompute,  ///< the chunk's forward again, before its backward
  offload,    ///< move the micro-batch's activations to host memory
  reload,     ///< and back
  optimizer,  ///< once, last
};
std::string_view name_of(ActionKind kind);

struct Action {
  ActionKind kind = ActionKind::forward;
  std::int32_t chunk = 0;        ///< of this rank, 0-based; 0 for optimizer
  std::int32_t micro_batch = 0;  ///< 0-based; 0 where it means nothing (unshard, reshard, reduce, optimizer)
  bool operator==(const Action&) const = default;
};

/// What a schedule is made for.
struct Shape {
  Kind kind = Kind::one_f_one_b;
  std::int64_t ranks = 1;          ///< pp
  std::int64_t chunks = 1;         ///< of each rank: 1, except interleaved (2 or more) and zb-v (2)
  std::int64_t micro_batches = 1;  ///< of one step
  bool operator==(const Shape&) const = default;
};

/// Per pipeline rank an ordered list of actions: the planner simulates it, the runtime executes it as it is.
struct Schedule {
  Shape shape;
  std::vector<std::vector<Action>> ranks;

  /// The stage (0 .. ranks * chunks - 1, in the order of the model) that is `chunk` of `rank`: in turn for
  /// interleaved, there and back for the V-shaped.
  std::int64_t stage_of(std::int64_t rank, std::int64_t chunk) const;
  std::int64_t rank_of(std::int64_t stage) const;
};

/// Every reason why `shape` is no schedule (micro-batches that cannot be dealt out, chunks), in the user's key
/// names; empty when it is one.
std::vector<std::string> problems_of(const Shape& shape);

/// The schedule of `shape`, with sends, receives and optimizer. RequestError with problems_of.
Schedule make_schedule(const Shape& shape);

/// Proves that a schedule can run before a rank starts: every chunk and micro-batch forward and backward exactly
/// once, each send with its receive in the same order on each link, no cycle of waiting, `optimizer` last. Every
/// defect in words; empty when it is sound.
std::vector<std::string> defects(const Schedule& schedule);

/// Most micro-batches whose activations `rank` holds at once, counted in chunks (a rank with 2 chunks counts
/// each): released by backward, or by weight_grad where backward is split. By closed form where there is one;
/// equals a walk over the schedule (tested).
std::int64_t peak_in_flight(const Shape& shape, std::int64_t rank);

/// Seconds of one stage (chunk) for one micro-batch, and of the transfer to the next.
struct StageSeconds {
  double forward = 0;
  double input_grad = 0;   ///< of backward
  double weight_grad = 0;  ///< of backward
  double send = 0;         ///< to the next stage: activations, or as many gradients back
};

/// One executed action.
struct Interval {
  ActionKind kind = ActionKind::forward;
  std::int32_t rank = 0, chunk = 0, micro_batch = 0;
  double start = 0, end = 0;
};

struct Simulation {
  double seconds = 0;               ///< from the first start to the last end, optimizer not counted
  std::vector<double> busy;         ///< by rank, seconds of compute
  std::vector<Interval> intervals;  ///< compute actions, when asked for
  /// Share of seconds that the ranks wait on average: 1 - mean(busy) / seconds.
  double bubble() const;
};

/// Runs `shape` with one StageSeconds per stage (ranks * chunks of them, in the order of the model). Sends do
/// not occupy the sender; a receiver waits for them. At p = 16, m = 128 a 1F1B simulation takes at most 50 us:
/// orders are kept per shape (thread-local), intervals only on demand.
Simulation simulate(const Shape& shape, const std::vector<StageSeconds>& stages, bool with_intervals = false);

/// A lower bound of simulate().seconds, by closed form: the busiest rank, and the way of the first micro-batch to it and of
/// the last back. Never above the simulation (property test).
double least_seconds(const Shape& shape, const std::vector<StageSeconds>& stages);

/// The timeline as text, one line a rank, `width` columns: digits for forwards (the micro-batch's last digit), letters for
/// backwards, dots for waiting.
std::string timeline(const Simulation& simulation, const Shape& shape, std::int64_t width);

}  // namespace ndmesh::schedule
