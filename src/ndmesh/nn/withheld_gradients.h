#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

namespace torch::autograd {
struct Edge;
}

namespace ndmesh::nn {

/// Gradients of parameters that a backward pass has left for later, so that the gradient of its input is there sooner (the
/// split of "Zero Bubble Pipeline Parallelism", Qi et al., 2023). Products wait, with what they read; what costs little is
/// finished and waits as it is. Nothing is computed twice. Movable; one thread.
class WithheldGradients {
 public:
  WithheldGradients();
  WithheldGradients(WithheldGradients&&) noexcept;
  WithheldGradients& operator=(WithheldGradients&&) noexcept;
  ~WithheldGradients();

  /// While it lives, backward passes on this thread give parameters nothing: what they owe them is added to `owed`. Scopes
  /// nest.
  class Scope {
   public:
    explicit Scope(WithheldGradients& owed);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    WithheldGradients* before_;
  };
  /// Where this thread's backward passes leave what they owe; null outside of scopes.
  static WithheldGradients* current();

  /// Computes what waits and hands it to the parameters, as a backward pass would: gradients that go to one node together,
  /// in the order in which they were left. Then nothing is owed.
  void deliver();

  /// What one operator owes: gradients of inputs, by the edge to each, finished or to be had from `compute`, which gives
  /// those of all edges in order.
  struct Debt {
    std::vector<torch::autograd::Edge> edges;
    std::vector<at::Tensor> finished;                  ///< undefined: `compute` gives it
    std::function<std::vector<at::Tensor>()> compute;  ///< empty: all are finished
  };
  void add(Debt debt);

 private:
  std::vector<Debt> debts_;
};

}  // namespace ndmesh::nn
