#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace torch::autograd {
struct Edge;
}

namespace ndmesh::nn {

using Tensors = std::vector<at::Tensor>;

/// While it lives, operators on this thread record nothing, not even what is a view of what.
using WithoutAutograd = at::AutoDispatchBelowADInplaceOrView;

/// Which inputs of an operator need a gradient in this backward pass.
class Needs {
 public:
  using Test = std::function<bool(std::size_t)>;
  explicit Needs(Test test, Test leave = {}) : test_(std::move(test)), leave_(std::move(leave)) {}
  bool operator()(std::size_t input) const { return test_(input); }

  /// Needed in this call, and not left for later: for gradients of parameters that cost a product. What is left is asked
  /// for in a further call, with the same saved tensors and gradients, which needs nothing else (withheld_gradients.h).
  bool now(std::size_t input) const { return test_(input) && !(leave_ && leave_(input)); }

 private:
  Test test_;
  Test leave_;
};

/// Backward of an operator: (saved, gradients of the outputs, needs) -> gradients of the inputs, in order. An
/// incoming gradient may be undefined, which means zero; an outgoing one may be left undefined where needs(i)
/// is false.
using Backward = std::function<Tensors(const Tensors& saved, const Tensors& grads, const Needs& needs)>;

/// Outputs of an operator again, from what it saved: bitwise as they were.
using Again = std::function<Tensors(const Tensors& saved)>;

/// While it lives, outputs of operators that can be made again cheaply (norms, activations) are not kept for the
/// operators that read them: the first backward that needs one makes it again, from what its maker saved anyway,
/// and it goes with the last that does. Of this thread; scopes nest. Costs nothing where nothing is saved.
class KeepLess {
 public:
  KeepLess();
  ~KeepLess();
  KeepLess(const KeepLess&) = delete;
  KeepLess& operator=(const KeepLess&) = delete;

 private:
  bool before_;
};

/// While it lives, what operators keep for backward lies in host memory: it is sent there when it is kept, and back when
/// the first backward reads it, until the last has. Parameters, what needs no gradient (statistics, tables) and what is
/// below `least_bytes` stay. Of this thread; scopes nest.
class KeepOnHost {
 public:
  static constexpr std::int64_t least_bytes = 4096;

  KeepOnHost();
  ~KeepOnHost();
  KeepOnHost(const KeepOnHost&) = delete;
  KeepOnHost& operator=(const KeepOnHost&) = delete;

  class Sent;

 private:
  std::unique_ptr<Sent> sent_;
  Sent* before_;
};

/// `x` as the beginning of a graph, without being a parameter: backward adds its gradient to `gradient` (undefined at
/// first), which outlives the graph.
at::Tensor begin_graph(const at::Tensor& x, at::Tensor& gradient);

/// Places in the order of backward: of what is ready, autograd runs first what was made last. Reserved as if `count`
/// operators were made now; the first of them has the lowest number and its turn comes last.
std::uint64_t reserve_turns(std::uint64_t count);

struct AttachOptions {
  /// Empty where making the outputs again would cost about as much as they did.
  Again again = {};
  /// When the outputs are made again in backward instead of being kept for those who read them there: while a KeepLess
  /// lives, or always.
  bool always_again = false;
  /// What is saved is for that alone: the operator, of no parameter, has a backward that reads nothing.
  bool saved_for_again = false;
  /// The operator's own, of reserve_turns; 0: as it was made.
  std::uint64_t turn = 0;
  /// When linears that read the output make the gradients of their weights; 0: with that of the output. So a message
  /// that the gradient of the output starts can be on its way meanwhile.
  std::uint64_t weights_turn = 0;
};

/// AttachOptions::weights_turn of the operator that made `x`.
std::uint64_t weights_turn_of(const at::Tensor& x);

/// Makes `outputs` differentiable functions of `inputs`. They are computed without autograd and fresh, or, where a
/// gradient is only handed on, a detached alias of an input. Their backward is `backward`, called on the thread that
/// runs the backward pass, with the tensors of `saved` as they were (a change in place in between throws). With
/// gradients off, or when no input needs one, nothing happens and nothing is saved. The one place where ndmesh makes
/// autograd nodes of operators.
void attach(const std::string& name, const Tensors& inputs, Tensors& outputs, const Tensors& saved,
            Backward backward, AttachOptions options = {});

/// Backward from the end of a graph, `from` being the edge to what made its last tensor, which need not live any more.
/// `gradient` goes as soon as it is used.
void backward_from(const torch::autograd::Edge& from, at::Tensor gradient);

}  // namespace ndmesh::nn
