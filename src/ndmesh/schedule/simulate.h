#pragma once

#include <span>

#include "ndmesh/schedule/schedule.h"

namespace ndmesh::schedule {

/// Seconds of one stage (chunk) for one micro-batch, and of the transfer to the next. Not negative.
struct StageSeconds {
  double forward = 0;
  double input_grad = 0;   ///< of backward
  double weight_grad = 0;  ///< of backward
  double send = 0;  ///< to the next stage: activations, or as many gradients back; none within one rank
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
  std::vector<Interval> intervals;  ///< compute actions, when asked for; in order on each rank
  /// Share of seconds that the ranks wait on average: 1 - mean(busy) / seconds; 0 when nothing takes time, and
  /// exactly 0 when nobody waits.
  double bubble() const;
};

/// Runs `shape` with one StageSeconds per stage (shape.stages() of them, in the order of the model; else
/// std::invalid_argument). Sends do not occupy the sender, links carry any number of messages at once; what
/// needs a message waits for it. RequestError with problems_of. At p = 16, m = 128 a 1F1B simulation takes at
/// most 50 us: orders are kept per shape (thread-local, bounded), intervals only on demand.
Simulation simulate(const Shape& shape, std::span<const StageSeconds> stages, bool with_intervals = false);

/// Runs the lists of a schedule of any origin, which has no defects; slower, with intervals in the order in which they are
/// found. std::invalid_argument for a wrong number of `stages`, or when a rank waits for ever.
Simulation simulate_list(const Schedule& schedule, std::span<const StageSeconds> stages);

/// A lower bound of simulate().seconds, by closed form; never above the simulation but for rounding (property
/// test), exact for gpipe. For each rank: the way of the first micro-batch to it, its work, and the way of the
/// last one back; where a schedule limits the micro-batches in flight, also the round trips that follow one
/// another. `shape` has no problems. Allocates nothing.
double least_seconds(const Shape& shape, std::span<const StageSeconds> stages);

/// The timeline as text: one line a rank of `width` columns (at least 1), each showing the middle of its time:
/// digits for forwards (the micro-batch's last digit), small letters for backwards and input gradients (a for
/// 0 .. j for 9), capitals for weight gradients, dots for waiting. Needs the intervals.
std::vector<std::string> timeline(const Simulation& simulation, const Shape& shape, std::int64_t width);

/// The same as a picture: an SVG document with a row a rank, forwards, input gradients (or backwards) and weight gradients
/// in three colours, each with its micro-batch where there is room; later chunks are darker.
std::string timeline_svg(const Simulation& simulation, const Shape& shape);

}  // namespace ndmesh::schedule
