#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
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
///     at::Tensor forward(const at::Tensor& x) {
///       return pass(x, [this](const at::Tensor& x) { return second->forward(at::gelu(first->forward(x))); });
///     }
///   };
class Unit {
 public:
  /// What a unit makes of its input. It may be kept and run again in backward: let it capture by value
  /// (and `this`, which outlives the backward pass), and depend on nothing that changes in between.
  using Body = std::function<at::Tensor(const at::Tensor&)>;
  /// How the body is run: recompute.h attaches one that keeps little and runs it again.
  using Runner = std::function<at::Tensor(const at::Tensor& x, const Body& body)>;

  virtual ~Unit() = default;
  Port enter;     ///< first: parameters become readable
  Port leave;     ///< last: parameters may go
  Runner around;  ///< empty: the body is called

  /// The strategy's own state for this unit; dropped with the module.
  std::shared_ptr<void> attachment;

  /// Forwards so far: more than one in a step means several gradients of each parameter where the body runs again.
  std::int64_t passes() const { return passes_; }

 protected:
  /// The whole forward of the unit.
  at::Tensor pass(const at::Tensor& x, const Body& body) {
    ++passes_;
    const at::Tensor entered = enter(x);
    return leave(around ? around(entered, body) : body(entered));
  }

 private:
  std::int64_t passes_ = 0;
};

}  // namespace ndmesh::nn
