#include "ndmesh/parallel/tensor_parallel.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include "ndmesh/nn/autograd.h"

namespace ndmesh::parallel {
namespace {

using nn::Needs;
using nn::Tensors;

/// One tensor for each sequence of a batch: ranks cut each of them.
Tensors sequences_of(const at::Tensor& x_BSH) {
  return x_BSH.unbind(0);
}

at::Tensor gathered(comm::Group& group, const at::Tensor& part_BsH, const std::string& label) {
  const at::Tensor part = part_BsH.contiguous();
  at::Tensor whole = at::empty({part.size(0), part.size(1) * group.size(), part.size(2)}, part.options());
  group.all_gather(sequences_of(whole), sequences_of(part), label);
  return whole;
}

at::Tensor summed_part(comm::Group& group, const at::Tensor& addend_BSH, const std::string& label) {
  const at::Tensor addend = addend_BSH.contiguous();
  at::Tensor part =
      at::empty({addend.size(0), addend.size(1) / group.size(), addend.size(2)}, addend.options());
  group.reduce_scatter(sequences_of(part), sequences_of(addend), /*accumulate=*/false, label);
  return part;
}

/// In place: `addend` was made for this and nobody else reads it.
at::Tensor summed(comm::Group& group, const at::Tensor& addend, const std::string& label) {
  at::Tensor sum = addend.detach().contiguous();
  group.all_reduce({sum}, comm::Reduction::sum, label);
  return sum;
}

/// What two conjugate operators do at a port, and its gradient.
using Step = at::Tensor (*)(comm::Group&, const at::Tensor&, const std::string&);

at::Tensor untouched(comm::Group&, const at::Tensor& x, const std::string&) {
  return x.detach();
}

struct PortSteps {
  Step forward;
  Step backward;
  bool made_again = false;  ///< the result is not kept for backward, but made again there
};

constexpr PortSteps gather = {gathered, summed_part, true};
constexpr PortSteps scatter = {summed_part, gathered};
constexpr PortSteps copy = {untouched, summed};
constexpr PortSteps reduce = {summed, untouched};

nn::Port::Action action(comm::Group& group, const PortSteps& steps, const std::string& label) {
  return [&group, steps, label](const at::Tensor& x) {
    Tensors out;
    {
      const nn::WithoutAutograd plain;
      out = {steps.forward(group, x, label)};
    }
    nn::Again again;
    if (steps.made_again) {
      again = [&group, steps, label](const Tensors& saved) {
        return Tensors{steps.forward(group, saved[0], label + ", again")};
      };
    }
    nn::attach(
        label, {x}, out, steps.made_again ? Tensors{x} : Tensors{},
        [&group, steps, label](const Tensors&, const Tensors& gradients, const Needs&) {
          const at::Tensor& gradient = gradients[0];
          return Tensors{gradient.defined() ? steps.backward(group, gradient, label + ", gradient")
                                            : at::Tensor()};
        },
        std::move(again), nn::Remake::always);
    return out[0];
  };
}

/// Statistics of every part of the vocabulary.
nn::Port::Action vocabulary_action(comm::Group& group) {
  return [&group](const at::Tensor& statistics_3T) {
    at::Tensor all = at::empty({group.size(), 3, statistics_3T.size(1)}, statistics_3T.options());
    group.all_gather({all}, {statistics_3T.contiguous().unsqueeze(0)}, "statistics of logits");
    return all;
  };
}

}  // namespace

void tensor_parallel(nn::Decoder& model, comm::Communicator& communicator) {
  if (communicator.mesh().size(mesh::Axis::tp) == 1) {
    return;
  }
  comm::Group& group = communicator.group({mesh::Axis::tp});
  const bool by_sequence = model.part().sequence_parts > 1;
  const PortSteps& in = by_sequence ? gather : copy;
  const PortSteps& out = by_sequence ? scatter : reduce;
  for (const auto& block : model.blocks()) {
    const std::string name = fmt::format("layers.{}", block->layer);
    block->self_attn->column_in.attach(action(group, in, name + " attention in"));
    block->self_attn->row_out.attach(action(group, out, name + " attention out"));
    block->mlp->column_in.attach(action(group, in, name + " feed-forward in"));
    block->mlp->row_out.attach(action(group, out, name + " feed-forward out"));
  }
  model.embed_out.attach(action(group, out, "embedded tokens"));
  model.loss_in.attach(action(group, in, "head in"));
  model.vocabulary.attach(vocabulary_action(group));
}

}  // namespace ndmesh::parallel
