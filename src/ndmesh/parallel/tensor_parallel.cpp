#include "ndmesh/parallel/tensor_parallel.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <memory>
#include <utility>

#include "ndmesh/nn/autograd.h"

namespace ndmesh::parallel {
namespace {

using nn::Needs;
using nn::Tensors;

/// One tensor for each sequence of a batch: ranks cut each of them.
Tensors sequences_of(const at::Tensor& x_BSH) {
  return x_BSH.unbind(0);
}

/// A message and what it will have brought when it is released.
struct Sent {
  at::Tensor result;
  comm::Work work;

  at::Tensor received() {
    work.release();
    return std::move(result);
  }
};

Sent gathered(comm::Group& group, const at::Tensor& part_BsH, const std::string& label) {
  const at::Tensor part = part_BsH.contiguous();
  at::Tensor whole = at::empty({part.size(0), part.size(1) * group.size(), part.size(2)}, part.options());
  comm::Work work = group.start_all_gather(sequences_of(whole), sequences_of(part), label);
  return {std::move(whole), std::move(work)};
}

Sent summed_part(comm::Group& group, const at::Tensor& addend_BSH, const std::string& label) {
  const at::Tensor addend = addend_BSH.contiguous();
  at::Tensor part =
      at::empty({addend.size(0), addend.size(1) / group.size(), addend.size(2)}, addend.options());
  comm::Work work =
      group.start_reduce_scatter(sequences_of(part), sequences_of(addend), /*accumulate=*/false, label);
  return {std::move(part), std::move(work)};
}

/// In place: `addend` was made for this and nobody else reads it.
Sent summed(comm::Group& group, const at::Tensor& addend, const std::string& label) {
  at::Tensor sum = addend.detach().contiguous();
  comm::Work work = group.start_all_reduce({sum}, comm::Reduction::sum, label);
  return {std::move(sum), std::move(work)};
}

Sent untouched(comm::Group&, const at::Tensor& x, const std::string&) {
  return {x.detach(), {}};
}

/// What an operator does at a port, and its conjugate in backward.
using Step = Sent (*)(comm::Group&, const at::Tensor&, const std::string&);

/// In front of products: the gradient's message is started, products of the weights' gradients are made, and only then is
/// it waited for. That takes two operators, since autograd hands on what an operator returns: the first to be reached in
/// backward starts, and hands on the tensor that will be complete when the second has waited.
nn::Port::Action before_products(comm::Group& group, Step forward, Step backward, const std::string& label) {
  return [&group, forward, backward, label](const at::Tensor& x) {
    const std::uint64_t turns = nn::reserve_turns(3);  // wait, weights, start
    auto sent = std::make_shared<comm::Work>();
    const bool made_again = forward == gathered;  // what was gathered is not kept
    Tensors waits;
    Tensors out;
    {
      const nn::WithoutAutograd plain;
      waits = {x.detach()};
      out = {forward(group, x, label).received()};
    }
    nn::attach(label + ", gradient", {x}, waits, {},
               [sent](const Tensors&, const Tensors& gradients, const Needs&) {
                 sent->release();
                 return gradients;
               },
               {.turn = turns});
    nn::Again again = [&group, forward, label](const Tensors& saved) {
      return Tensors{forward(group, saved[0], label + ", again").received()};
    };
    nn::attach(label, {waits[0]}, out, made_again ? Tensors{x} : Tensors{},
               [&group, backward, label, sent](const Tensors&, const Tensors& gradients, const Needs&) {
                 if (!gradients[0].defined()) {
                   return Tensors(1);
                 }
                 Sent message = backward(group, gradients[0], label + ", gradient");
                 *sent = std::move(message.work);
                 return Tensors{message.result};
               },
               {.again = made_again ? std::move(again) : nn::Again(),
                .always_again = true,
                .saved_for_again = true,
                .turn = turns + 2,
                .weights_turn = turns + 1});
    return out[0];
  };
}

/// Behind products: what follows needs the message at once, in either direction.
nn::Port::Action behind_products(comm::Group& group, Step forward, Step backward, const std::string& label) {
  return [&group, forward, backward, label](const at::Tensor& x) {
    Tensors out;
    {
      const nn::WithoutAutograd plain;
      out = {forward(group, x, label).received()};
    }
    nn::attach(label, {x}, out, {},
               [&group, backward, label](const Tensors&, const Tensors& gradients, const Needs&) {
                 const at::Tensor& gradient = gradients[0];
                 return Tensors{gradient.defined()
                                    ? backward(group, gradient, label + ", gradient").received()
                                    : at::Tensor()};
               });
    return out[0];
  };
}

/// In place: a number a token, made for this.
nn::Port::Action mean_action(comm::Group& group, const std::string& label) {
  return [&group, label](const at::Tensor& x) {
    group.all_reduce({x}, comm::Reduction::sum, label);
    return x.div_(group.size());
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
  const auto in = [&](const std::string& label) {
    return by_sequence ? before_products(group, gathered, summed_part, label)
                       : before_products(group, untouched, summed, label);
  };
  const auto out = [&](const std::string& label) {
    return by_sequence ? behind_products(group, summed_part, gathered, label)
                       : behind_products(group, summed, untouched, label);
  };
  for (const auto& block : model.blocks()) {
    const std::string name = fmt::format("layers.{}", block->layer);
    block->self_attn->column_in.attach(in(name + " attention in"));
    block->self_attn->row_out.attach(out(name + " attention out"));
    block->self_attn->heads_mean.attach(mean_action(group, name + " mean over heads"));
    block->mlp->column_in.attach(in(name + " feed-forward in"));
    block->mlp->row_out.attach(out(name + " feed-forward out"));
  }
  model.embed_out.attach(out("embedded tokens"));
  model.loss_in.attach(in("head in"));
  model.vocabulary.attach(vocabulary_action(group));
}

}  // namespace ndmesh::parallel
