#include "ndmesh/nn/autograd.h"

#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <algorithm>
#include <utility>

namespace ndmesh::nn {
namespace {

using torch::autograd::Node;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

thread_local bool keeps_less = false;

class OperatorNode;

/// What a backward reads: kept, or made again by the operator that made it.
struct Saved {
  SavedVariable kept;
  c10::intrusive_ptr<OperatorNode> maker;  ///< null: it is kept
  std::int64_t output = 0;                 ///< of the maker
};

class OperatorNode final : public Node {
 public:
  OperatorNode(std::string label, Backward backward, Again again)
      : label_(std::move(label)), backward_(std::move(backward)), again_(std::move(again)) {}

  void save(const Tensors& tensors, const Tensors& outputs);

  variable_list apply(variable_list&& grads) override {
    std::lock_guard lock(mutex_);
    TORCH_CHECK(backward_, label_, ": backward ran twice over the same graph");
    const at::NoGradGuard no_grad;
    return backward_(unpacked(), grads,
                     Needs([this](std::size_t i) { return task_should_compute_output(i); }));
  }

  void release_variables() override {
    saved_.clear();
    made_again_.clear();
    backward_ = nullptr;
    again_ = nullptr;
  }

  std::string name() const override { return label_; }
  bool can_make_again() const { return static_cast<bool>(again_); }

 private:
  Tensors unpacked() {
    auto self = c10::intrusive_ptr<Node>::reclaim_copy(this);
    Tensors tensors;
    tensors.reserve(saved_.size());
    for (const Saved& saved : saved_) {
      tensors.push_back(saved.maker ? saved.maker->output_again(saved.output) : saved.kept.unpack(self));
    }
    return tensors;
  }

  /// Made once, and held until the last operator that reads it has asked.
  at::Tensor output_again(std::int64_t output) {
    if (made_again_.empty()) {
      made_again_ = again_(unpacked());
    }
    at::Tensor result = made_again_[static_cast<std::size_t>(output)];
    if (--readers_ == 0) {
      made_again_.clear();
    }
    return result;
  }

  std::string label_;
  std::vector<Saved> saved_;
  Backward backward_;
  Again again_;
  Tensors made_again_;
  std::int64_t readers_ = 0;  ///< operators that will ask for an output
};

bool is_one_of(const Tensors& tensors, const at::Tensor& t) {
  return std::any_of(tensors.begin(), tensors.end(), [&](const at::Tensor& o) { return o.is_same(t); });
}

/// The operator that can make `tensor` again; null when there is none.
c10::intrusive_ptr<OperatorNode> maker_of(const at::Tensor& tensor) {
  auto* maker = tensor.defined() ? dynamic_cast<OperatorNode*>(tensor.grad_fn().get()) : nullptr;
  return maker != nullptr && maker->can_make_again() ? c10::intrusive_ptr<OperatorNode>::reclaim_copy(maker)
                                                     : nullptr;
}

void OperatorNode::save(const Tensors& tensors, const Tensors& outputs) {
  for (const at::Tensor& tensor : tensors) {
    const bool own = is_one_of(outputs, tensor);  // saying "output" keeps the graph free of a cycle
    if (auto maker = own ? nullptr : maker_of(tensor)) {
      ++maker->readers_;
      saved_.push_back({{}, std::move(maker), tensor.output_nr()});
    } else {
      saved_.push_back({SavedVariable(tensor, own), nullptr, 0});
    }
  }
}

}  // namespace

KeepLess::KeepLess() : before_(std::exchange(keeps_less, true)) {}
KeepLess::~KeepLess() {
  keeps_less = before_;
}

void attach(const std::string& name, const Tensors& inputs, Tensors& outputs, const Tensors& saved,
            Backward backward, Again again) {
  const bool needed = at::GradMode::is_enabled() &&
                      std::any_of(inputs.begin(), inputs.end(),
                                  [](const at::Tensor& t) { return t.defined() && t.requires_grad(); });
  if (!needed) {
    return;
  }
  auto node =
      c10::make_intrusive<OperatorNode>(name, std::move(backward), keeps_less ? std::move(again) : Again());
  node->set_next_edges(torch::autograd::collect_next_edges(inputs));
  for (at::Tensor& output : outputs) {
    torch::autograd::set_history(output, node);
  }
  node->save(saved, outputs);
}

}  // namespace ndmesh::nn
