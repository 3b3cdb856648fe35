#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "ndmesh/schedule/simulate.h"

namespace ndmesh::schedule {
namespace {

/// Seconds of a stage as the bounds add them up.
struct Seconds {
  double forward = 0;
  double backward = 0;  ///< for which the stage before waits
  double weights = 0;   ///< of a weight gradient of its own
  double transfer = 0;  ///< to the next stage

  double work() const { return forward + backward + weights; }
};

/// What all bounds need: the stages, and sums over all of them.
class Pipeline {
 public:
  Pipeline(const Shape& shape, std::span<const StageSeconds> stages)
      : shape_(shape), stages_(stages), split_(shape.splits_backward()) {}

  Seconds at(std::int64_t stage) const {
    const StageSeconds& given = stages_[static_cast<std::size_t>(stage)];
    const bool last = stage + 1 == shape_.stages();
    return {.forward = given.forward,
            .backward = given.input_grad + (split_ ? 0 : given.weight_grad),
            .weights = split_ ? given.weight_grad : 0,
            .transfer = last || shape_.rank_of(stage) == shape_.rank_of(stage + 1) ? 0 : given.send};
  }

  /// Of all chunks of a rank.
  double work(std::int64_t rank) const {
    double sum = 0;
    for (std::int64_t chunk = 0; chunk < shape_.chunks; ++chunk)
      sum += at(shape_.stage_of(rank, chunk)).work();
    return sum;
  }

  /// One micro-batch from the first stage to the last and back.
  double round_trip() const {
    double sum = 0;
    for (std::int64_t stage = 0; stage < shape_.stages(); ++stage) {
      const Seconds seconds = at(stage);
      sum += seconds.forward + seconds.backward + 2 * seconds.transfer;
    }
    return sum;
  }

  const Shape& shape() const { return shape_; }
  double count() const { return static_cast<double>(shape_.micro_batches); }
  bool split() const { return split_; }

 private:
  const Shape& shape_;
  std::span<const StageSeconds> stages_;
  bool split_;
};

/// Identical jobs pass the stages in a row: the slowest stage is always busy, and is reached and left once.
double gpipe(const Pipeline& pipeline) {
  double forward = 0, backward = 0;
  for (std::int64_t stage = 0; stage < pipeline.shape().stages(); ++stage) {
    forward = std::max(forward, pipeline.at(stage).forward);
    backward = std::max(backward, pipeline.at(stage).backward);
  }
  return pipeline.round_trip() + (pipeline.count() - 1) * (forward + backward);
}

/// Weight gradients that a rank of zb-h1 or zb-v has left when its last input gradient of chunk 0 is done.
struct Left {
  std::int64_t first = 0;  ///< of chunk 0
  std::int64_t second = 0;
};

Left left_behind(const Shape& shape, std::int64_t rank) {
  const std::int64_t count = shape.micro_batches;
  if (shape.kind == Kind::zb_h1) return {std::min(count, rank + 1), 0};
  return {std::clamp<std::int64_t>(count - shape.ranks + 1, 1, rank + 1),
          std::clamp<std::int64_t>(count - (2 * shape.ranks - 1 - rank), 0, rank)};
}

/// Bounds of one rank after the other.
class RankBounds {
 public:
  explicit RankBounds(const Pipeline& pipeline) : pipeline_(pipeline), trip_(pipeline.round_trip()) {}

  double largest() {
    double bound = 0;
    for (std::int64_t rank = 0; rank < pipeline_.shape().ranks; ++rank) {
      const double tail = tail_of(rank);
      bound = std::max({bound, lead_ + busy(rank) + tail, limited_in_flight(rank, tail)});
      const Seconds here = pipeline_.at(rank);
      lead_ += here.forward + here.transfer;
      trip_ -= here.forward + here.backward + 2 * here.transfer;
      tail_ = tail + here.backward;  // of the last micro-batch, which goes on to the rank before
    }
    return bound;
  }

 private:
  double left(std::int64_t rank) const {
    if (!pipeline_.split()) return 0;
    const Shape& shape = pipeline_.shape();
    const Left counts = left_behind(shape, rank);
    double sum = static_cast<double>(counts.first) * pipeline_.at(rank).weights;
    if (counts.second > 0)
      sum += static_cast<double>(counts.second) * pipeline_.at(shape.stage_of(rank, 1)).weights;
    return sum;
  }

  /// Seconds of the step behind the last (input) gradient of the rank's first stage: the way of that
  /// micro-batch through the ranks before it, or what is left to do on one of them.
  double tail_of(std::int64_t rank) const {
    const double before = rank == 0 ? 0 : pipeline_.at(rank - 1).transfer + tail_;
    return std::max(left(rank), before);
  }

  /// What the rank does up to that gradient.
  double busy(std::int64_t rank) const { return pipeline_.count() * pipeline_.work(rank) - left(rank); }

  /// 1f1b and zb-h1 start a forward only when the gradient of the one `held` before it is back.
  double limited_in_flight(std::int64_t rank, double tail) const {
    const Shape& shape = pipeline_.shape();
    if (shape.kind != Kind::one_f_one_b && shape.kind != Kind::zb_h1) return 0;
    const std::int64_t held = shape.ranks - rank;
    const std::int64_t trips = (shape.micro_batches - 1) / held + 1;
    const std::int64_t first = (shape.micro_batches - 1) % held;
    return lead_ + static_cast<double>(first) * pipeline_.at(rank).forward +
           static_cast<double>(trips) * trip_ + tail;
  }

  const Pipeline& pipeline_;
  double lead_ = 0;  ///< until the first micro-batch reaches the rank
  double trip_ = 0;  ///< of a micro-batch from the rank's first stage to the last and back
  double tail_ = 0;  ///< of the rank before, with its own gradient
};

}  // namespace

double least_seconds(const Shape& shape, std::span<const StageSeconds> stages) {
  if (static_cast<std::int64_t>(stages.size()) != shape.stages()) {
    throw std::invalid_argument(
        fmt::format("least_seconds: {} stages have no times, but {}", shape.stages(), stages.size()));
  }
  const Pipeline pipeline(shape, stages);
  if (shape.kind == Kind::gpipe && shape.ranks > 1) return gpipe(pipeline);
  const double alone = pipeline.round_trip() + pipeline.at(0).weights;  // a single micro-batch
  return std::max(alone, RankBounds(pipeline).largest());
}

}  // namespace ndmesh::schedule
