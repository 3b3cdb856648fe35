#include "ndmesh/nn/autograd.h"

#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <algorithm>

namespace ndmesh::nn {
namespace {

using torch::autograd::Node;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

struct OperatorNode final : Node {
  std::string label;
  std::vector<SavedVariable> saved;
  Backward backward;

  variable_list apply(variable_list&& grads) override {
    std::lock_guard lock(mutex_);
    TORCH_CHECK(backward, label, ": backward ran twice over the same graph");
    auto self = c10::intrusive_ptr<Node>::reclaim_copy(this);
    Tensors unpacked;
    unpacked.reserve(saved.size());
    for (SavedVariable& variable : saved) {
      unpacked.push_back(variable.unpack(self));
    }
    const at::NoGradGuard no_grad;
    return backward(unpacked, grads, Needs([this](std::size_t i) { return task_should_compute_output(i); }));
  }

  void release_variables() override {
    saved.clear();
    backward = nullptr;
  }

  std::string name() const override { return label; }
};

bool is_one_of(const Tensors& tensors, const at::Tensor& t) {
  return std::any_of(tensors.begin(), tensors.end(), [&](const at::Tensor& o) { return o.is_same(t); });
}

}  // namespace

void attach(const std::string& name, const Tensors& inputs, Tensors& outputs, const Tensors& saved,
            Backward backward) {
  const bool needed = at::GradMode::is_enabled() &&
                      std::any_of(inputs.begin(), inputs.end(),
                                  [](const at::Tensor& t) { return t.defined() && t.requires_grad(); });
  if (!needed) {
    return;
  }
  auto node = c10::make_intrusive<OperatorNode>();
  node->label = name;
  node->backward = std::move(backward);
  node->set_next_edges(torch::autograd::collect_next_edges(inputs));
  for (at::Tensor& output : outputs) {
    torch::autograd::set_history(output, node);
  }
  for (const at::Tensor& tensor : saved) {
    node->saved.emplace_back(tensor,
                             is_one_of(outputs, tensor));  // saying "output" keeps the graph free of a cycle
  }
}

}  // namespace ndmesh::nn
