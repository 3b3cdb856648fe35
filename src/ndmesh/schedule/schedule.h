#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ndmesh::schedule {

/// The pipeline schedules. 1F1B after PipeDream-Flush (Narayanan et al. 2021), interleaved after Megatron-LM
/// (Narayanan et al. 2021), ZB-H1 after "Zero Bubble Pipeline Parallelism" (Qi et al. 2023), ZB-V after
/// "Pipeline Parallelism with Controllable Memory" (Qi et al. 2024).
enum class Kind { gpipe, one_f_one_b, interleaved, zb_h1, zb_v };

/// "gpipe", "1f1b", "interleaved", "zb-h1", "zb-v": as in pipeline.schedule.
std::string_view name_of(Kind kind);
Kind kind_from_name(std::string_view name);  // RequestError with the list
std::vector<std::string> kind_names();
std::int64_t least_chunks(Kind kind);  ///< of each rank, where there are several ranks
bool splits_backward(Kind kind);       ///< input and weight gradient are actions of their own

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
/// forward, backward, input_grad, weight_grad.
constexpr bool is_compute(ActionKind kind) {
  return kind <= ActionKind::weight_grad;
}

struct Action {
  ActionKind kind = ActionKind::forward;
  std::int32_t chunk = 0;        ///< of this rank, 0-based; 0 for optimizer
  std::int32_t micro_batch = 0;  ///< 0-based; 0 where it means nothing (unshard, reshard, reduce, optimizer)
  bool operator==(const Action&) const = default;
};

/// What a schedule is made for. With one rank the kind means nothing: micro-batches pass one after the other.
struct Shape {
  Kind kind = Kind::one_f_one_b;
  std::int64_t ranks = 1;          ///< pp
  std::int64_t chunks = 1;         ///< of each rank: 1, except interleaved (2 or more) and zb-v (2)
  std::int64_t micro_batches = 1;  ///< of one step
  bool operator==(const Shape&) const = default;

  std::int64_t stages() const { return ranks * chunks; }
  bool splits_backward() const { return ranks > 1 && schedule::splits_backward(kind); }
  /// The stage (0 .. stages() - 1, in the order of the model) that is `chunk` of `rank`: in turn, or there and
  /// back for zb-v.
  std::int64_t stage_of(std::int64_t rank, std::int64_t chunk) const;
  std::int64_t rank_of(std::int64_t stage) const;
  std::int64_t chunk_of(std::int64_t stage) const { return stage / ranks; }
};

/// Most stages x micro-batches of a schedule: 2 097 152.
constexpr std::int64_t max_passes = std::int64_t{1} << 21;

/// Every reason why `shape` is no schedule (sizes, chunks, micro-batches that cannot be dealt out), in the
/// user's key names; empty when it is one.
std::vector<std::string> problems_of(const Shape& shape);

/// Per pipeline rank an ordered list of actions: the planner simulates it, the runtime executes it as it is.
/// A send starts and never waits. A receive starts too; the action that needs the message waits for it.
/// Between two ranks messages are received in the order in which they are sent, whatever their kind, so
/// neither a tag nor a second channel is needed; no rank sends to itself.
struct Schedule {
  Shape shape;
  std::vector<std::vector<Action>> ranks;
};

/// The schedule of `shape`, with sends, receives and optimizer. RequestError with problems_of.
Schedule make_schedule(const Shape& shape);

/// `schedule` with what data parallelism does beside: every chunk's `reduce`, before the optimizer, in the order in which
/// their backwards end; and where parameters are `gathered` for the whole of a chunk's work, `unshard` before its first
/// forward and `reshard` behind the last action that reads them. `schedule` has none of these.
Schedule with_sharding(Schedule schedule, bool gathered);

/// Forwards alone, with sends and receives and without `optimizer`, for evaluation: all micro-batches pass a chunk, then
/// the next. Any number of micro-batches will do. RequestError for sizes and chunks that are none.
Schedule make_forward_schedule(const Shape& shape);

/// Proves that a schedule of any origin can run before a rank starts: every chunk and micro-batch forward and
/// backward (whole, or as input and weight gradient) exactly once and in order, each send with its receive in
/// the same order on each link, no cycle of waiting even where receives block, `optimizer` last; a chunk's `unshard`,
/// `reshard` and `reduce`, each at most once, where with_sharding allows. Every defect in words, at most 20 of them; empty
/// when it is sound.
std::vector<std::string> defects(const Schedule& schedule);

/// Most micro-batches whose activations `rank` holds at once, counted in chunks (a rank with 2 chunks counts
/// each): released by backward, or by weight_grad where backward is split. Closed form; equals a walk over
/// the schedule (tested). `shape` has no problems.
std::int64_t peak_in_flight(const Shape& shape, std::int64_t rank);

/// The same where a pass of chunk c weighs weights[c] (shape.chunks of them, not negative): the most that the passes in
/// flight weigh together. Closed form; equals a walk (tested).
std::int64_t peak_in_flight(const Shape& shape, std::int64_t rank, std::span<const std::int64_t> weights);

}  // namespace ndmesh::schedule
