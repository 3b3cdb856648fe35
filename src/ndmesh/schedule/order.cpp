#include "ndmesh/schedule/order.h"

#include <algorithm>

#include "ndmesh/schedule/interleaving.h"

namespace ndmesh::schedule {
namespace {

/// Writes the order of one rank.
class Order {
 public:
  explicit Order(const Shape& shape) {
    const std::int64_t passes = shape.chunks * shape.micro_batches;
    actions_.reserve(static_cast<std::size_t>(passes * (shape.splits_backward() ? 3 : 2)));
  }

  void add(ActionKind kind, std::int64_t chunk, std::int64_t micro_batch) {
    actions_.push_back({kind, static_cast<std::int32_t>(chunk), static_cast<std::int32_t>(micro_batch)});
  }

  std::vector<Action> take() { return std::move(actions_); }

 private:
  std::vector<Action> actions_;
};

std::int64_t round_size(const Shape& shape) {
  return shape.micro_batches / interleaving_rounds(shape.micro_batches, shape.ranks);
}

/// gpipe, 1f1b, interleaved: forwards to warm up, one forward one backward, the rest of the backwards. With
/// several chunks a round of micro-batches passes one chunk, then the next; backwards the last chunk first.
std::vector<Action> in_turn(const Shape& shape, std::int64_t rank) {
  const std::int64_t passes = shape.chunks * shape.micro_batches;
  const std::int64_t size = round_size(shape);
  const std::int64_t round = size * shape.chunks;
  Order order(shape);
  const auto add = [&](ActionKind kind, std::int64_t pass) {
    const std::int64_t chunk = pass % round / size;
    const std::int64_t micro_batch = pass / round * size + pass % size;
    order.add(kind, kind == ActionKind::forward ? chunk : shape.chunks - 1 - chunk, micro_batch);
  };
  const std::int64_t ahead = warm_up(shape, rank);
  for (std::int64_t pass = 0; pass < ahead; ++pass) add(ActionKind::forward, pass);
  for (std::int64_t pass = 0; pass < passes; ++pass) {
    if (ahead + pass < passes) add(ActionKind::forward, ahead + pass);
    add(ActionKind::backward, pass);
  }
  return order.take();
}

/// zb-h1: 1f1b whose weight gradients stay `rank` micro-batches behind, so that every rank fills the wait of
/// its end and none holds more than rank 0 of 1f1b.
std::vector<Action> delayed_weight_grads(const Shape& shape, std::int64_t rank) {
  Order order(shape);
  std::int64_t forwards = 0;
  const auto forward = [&] {
    if (forwards < shape.micro_batches) order.add(ActionKind::forward, 0, forwards++);
  };
  for (std::int64_t i = 0; i < shape.ranks - rank; ++i) forward();
  for (std::int64_t i = 0; i < shape.micro_batches + rank; ++i) {
    if (i < shape.micro_batches) order.add(ActionKind::input_grad, 0, i);
    if (i >= rank) order.add(ActionKind::weight_grad, 0, i - rank);
    if (i < shape.micro_batches) forward();
  }
  return order.take();
}

/// zb-v: the order for 2p - 1 micro-batches or more; with fewer, what would belong to the others is left out.
class VShaped {
 public:
  VShaped(const Shape& shape, std::int64_t rank)
      : order_(shape),
        wanted_(shape.micro_batches),
        passing_(std::max(shape.micro_batches, 2 * shape.ranks - 1)),
        ranks_(shape.ranks),
        rank_(rank) {}

  std::vector<Action> actions() {
    warm_up();
    steady();
    cool_down();
    return order_.take();
  }

 private:
  static constexpr std::size_t down = 0, up = 1;  // chunks, by the way their activations go

  /// The next micro-batch of `counts[chunk]`.
  void next(ActionKind kind, std::size_t chunk, std::int64_t (&counts)[2]) {
    const std::int64_t micro_batch = counts[chunk]++;
    if (micro_batch < wanted_) order_.add(kind, static_cast<std::int64_t>(chunk), micro_batch);
  }
  void forward(std::size_t chunk) { next(ActionKind::forward, chunk, forwards_); }
  void input_grad(std::size_t chunk) { next(ActionKind::input_grad, chunk, input_grads_); }
  void weight_grad(std::size_t chunk) { next(ActionKind::weight_grad, chunk, weight_grads_); }
  void backward(std::size_t chunk) {
    input_grad(chunk);
    weight_grad(chunk);
  }

  void warm_up() {
    for (std::int64_t i = 0; i < 2 * (ranks_ - rank_) - 1; ++i) forward(down);
    for (std::int64_t i = 0; i < rank_; ++i) {
      forward(up);
      forward(down);
    }
    for (std::int64_t i = 0; i < ranks_ - rank_; ++i) {
      forward(up);
      backward(up);
    }
  }

  void steady() {
    while (forwards_[up] < passing_) {
      if (forwards_[down] < passing_) forward(down);
      backward(down);
      forward(up);
      backward(up);
    }
  }

  /// Input gradients first, for whom the other ranks wait; weight gradients fill the time between and behind.
  void cool_down() {
    for (std::int64_t i = 0; i < rank_; ++i) {
      input_grad(down);
      input_grad(up);
    }
    for (std::int64_t i = 0; i < ranks_ - rank_; ++i) backward(down);
    while (weight_grads_[up] < passing_) weight_grad(up);
    while (weight_grads_[down] < passing_) weight_grad(down);
  }

  Order order_;
  std::int64_t wanted_, passing_, ranks_, rank_;
  std::int64_t forwards_[2] = {}, input_grads_[2] = {}, weight_grads_[2] = {};
};

}  // namespace

std::int64_t warm_up(const Shape& shape, std::int64_t rank) {
  const std::int64_t passes = shape.chunks * shape.micro_batches;
  const std::int64_t behind = shape.ranks - 1 - rank;
  switch (shape.kind) {
    case Kind::gpipe:
      return passes;
    case Kind::interleaved:
      return std::min(passes, (shape.chunks - 1) * round_size(shape) + 2 * behind);
    default:
      return std::min(passes, behind);
  }
}

std::vector<Action> compute_order(const Shape& shape, std::int64_t rank) {
  if (shape.ranks == 1) return in_turn({.micro_batches = shape.micro_batches}, 0);
  switch (shape.kind) {
    case Kind::zb_h1:
      return delayed_weight_grads(shape, rank);
    case Kind::zb_v:
      return VShaped(shape, rank).actions();
    default:
      return in_turn(shape, rank);
  }
}

}  // namespace ndmesh::schedule
