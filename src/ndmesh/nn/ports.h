#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <utility>

namespace ndmesh::nn {

/// A named place in a module where a strategy may act on the tensor that passes. Nothing attached: the tensor
/// passes untouched at the cost of one test. Attach before the first forward, from the rank's own thread.
class Port {
 public:
  using Action = std::function<at::Tensor(const at::Tensor&)>;

  at::Tensor operator()(const at::Tensor& x) const { return action_ ? action_(x) : x; }
  void attach(Action action) { action_ = std::move(action); }
  bool attached() const { return static_cast<bool>(action_); }

 private:
  Action action_;
};

/// What a module adds to its bases so that strategies can shard, recompute or offload it as one unit:
///
///   struct Block : torch::nn::Module, ndmesh::nn::Unit {
///     at::Tensor forward(at::Tensor x) {
///       x = enter(x);               // first: parameters become readable
///       ...
///       return leave(y);            // last: parameters may go
///     }
///   };
class Unit {
 public:
  virtual ~Unit() = default;
  Port enter;
  Port leave;

  /// The strategy's own state for this unit; dropped with the module.
  std::shared_ptr<void> attachment;
};

}  // namespace ndmesh::nn
