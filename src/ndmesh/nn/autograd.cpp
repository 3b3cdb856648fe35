#include "ndmesh/nn/autograd.h"

#include <ATen/Functions.h>
#include <ATen/SequenceNumber.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "ndmesh/nn/host_memory.h"
#include "ndmesh/nn/parameter_node.h"
#include "ndmesh/nn/withheld_gradients.h"

namespace ndmesh::nn {
namespace {

using torch::autograd::Node;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

thread_local bool keeps_less = false;
thread_local KeepOnHost::Sent* keeps_on_host = nullptr;

/// A kept tensor in host memory. One thread.
class HostCopy {
 public:
  explicit HostCopy(const at::Tensor& tensor) : host_(empty_on_host(tensor.sizes(), tensor.scalar_type())) {
    copy_to_host(host_, tensor.detach());
  }

  void add_reader() { ++readers_; }

  /// For one reader; what was brought back stays until the last has read it.
  at::Tensor read() {
    if (!device_.defined()) {
      device_ = at::empty(host_.sizes(), host_.options());
      copy_to_device(device_, host_);
    }
    at::Tensor result = device_;
    if (--readers_ <= 0) {  // below: an operator reads again what it makes its outputs of
      device_ = at::Tensor();
    }
    return result;
  }

 private:
  at::Tensor host_, device_;
  std::int64_t readers_ = 0;
};

class OperatorNode;

/// What a backward reads: kept, in host memory, or made again by the operator that made it.
struct Saved {
  SavedVariable kept;
  std::shared_ptr<HostCopy> host;   ///< null: it is not in host memory
  std::vector<std::int64_t> shape;  ///< of what is in host memory: a copy may serve views of several shapes
  c10::intrusive_ptr<OperatorNode> maker;  ///< null: it is kept
  std::int64_t output = 0;                 ///< of the maker
};

bool is_parameter(const at::Tensor& tensor) {
  return tensor.is_leaf() || dynamic_cast<ParameterNode*>(tensor.grad_fn().get()) != nullptr;
}

bool is_leaf(const torch::autograd::Edge& edge) {
  return dynamic_cast<const torch::autograd::AccumulateGrad*>(edge.function.get()) != nullptr;
}

bool is_parameter(const torch::autograd::Edge& edge) {
  return dynamic_cast<const ParameterNode*>(edge.function.get()) != nullptr || is_leaf(edge);
}

bool belongs_on_host(const at::Tensor& tensor) {
  return keeps_on_host != nullptr && tensor.defined() && tensor.requires_grad() && !is_parameter(tensor) &&
         static_cast<std::int64_t>(tensor.nbytes()) >= KeepOnHost::least_bytes;
}

class OperatorNode final : public Node {
 public:
  OperatorNode(std::string label, Backward backward, AttachOptions options)
      : Node(options.turn > 0 ? options.turn : reserve_turns(1)),
        label_(std::move(label)),
        backward_(std::move(backward)),
        again_(std::move(options.again)),
        weights_turn_(options.weights_turn),
        saved_for_again_(options.saved_for_again) {}

  void save(const Tensors& tensors, const Tensors& outputs);

  variable_list apply(variable_list&& grads) override {
    std::lock_guard lock(mutex_);
    TORCH_CHECK(backward_, label_, ": backward ran twice over the same graph");
    const at::NoGradGuard no_grad;
    const auto needed = [this](std::size_t i) { return task_should_compute_output(i); };
    if (saved_for_again_) {
      return backward_({}, grads, Needs(needed));
    }
    if (WithheldGradients* owed = WithheldGradients::current()) {
      return without_parameters(std::move(grads), needed, *owed);
    }
    return backward_(unpacked(), grads, Needs(needed));
  }

  void release_variables() override {
    backward_ = nullptr;
    released_ = true;
    if (readers_ <= 0) {
      forget();
    }
  }

  std::string name() const override { return label_; }
  bool can_make_again() const { return static_cast<bool>(again_); }
  std::uint64_t weights_turn() const { return weights_turn_; }

 private:
  /// Gradients of the inputs that are no parameters; those of the others are owed, except finished ones of whole tables,
  /// which are too large to wait where nothing but their sum is to be had.
  Tensors without_parameters(Tensors&& grads, const Needs::Test& needed, WithheldGradients& owed) {
    std::vector<bool> left(next_edges().size());
    const auto is_owed = [&](std::size_t i) { return needed(i) && is_parameter(next_edge(i)); };
    const auto leave = [&](std::size_t i) {
      left[i] = is_owed(i);
      return left[i];
    };
    Tensors saved = unpacked();
    Tensors results = backward_(saved, grads, Needs(needed, leave));
    WithheldGradients::Debt debt;
    std::vector<std::size_t> inputs;
    for (std::size_t i = 0; i < results.size(); ++i) {
      const bool waits =
          left[i] || (results[i].defined() && !(results[i].dim() > 1 && is_leaf(next_edge(i))));
      if (is_owed(i) && waits) {
        inputs.push_back(i);
        debt.edges.push_back(next_edge(i));
        debt.finished.push_back(std::exchange(results[i], {}));
      }
    }
    if (std::find(left.begin(), left.end(), true) != left.end()) {
      debt.compute = [backward = backward_, saved = std::move(saved), grads = std::move(grads), left,
                      inputs] {
        const at::NoGradGuard no_grad;
        const Tensors later = backward(saved, grads, Needs([&](std::size_t i) { return left[i]; }));
        Tensors owed_ones;
        for (const std::size_t i : inputs) {
          owed_ones.push_back(later[i]);
        }
        return owed_ones;
      };
    }
    owed.add(std::move(debt));
    return results;
  }

  Tensors unpacked() {
    auto self = c10::intrusive_ptr<Node>::reclaim_copy(this);
    Tensors tensors;
    tensors.reserve(saved_.size());
    for (const Saved& saved : saved_) {
      tensors.push_back(saved.maker  ? saved.maker->output_again(saved.output)
                        : saved.host ? saved.host->read().view(saved.shape)
                                     : saved.kept.unpack(self));
    }
    return tensors;
  }

  /// Made once, and held until the last operator that reads it has asked.
  at::Tensor output_again(std::int64_t output) {
    if (made_again_.empty()) {
      made_again_ = again_(unpacked());
    }
    at::Tensor result = made_again_[static_cast<std::size_t>(output)];
    if (--readers_ <= 0) {
      made_again_.clear();
      if (released_) {
        forget();
      }
    }
    return result;
  }

  void forget() {
    saved_.clear();
    made_again_.clear();
    again_ = nullptr;
  }

  std::string label_;
  std::vector<Saved> saved_;
  Backward backward_;
  Again again_;
  std::uint64_t weights_turn_;
  bool saved_for_again_;
  Tensors made_again_;
  std::int64_t readers_ =
      0;  ///< operators that will ask for an output, some perhaps after this one's own backward
  bool released_ = false;
};

/// Takes in the gradient of what a graph begins with.
class InputNode final : public Node {
 public:
  explicit InputNode(at::Tensor& gradient) : gradient_(gradient) {}

  variable_list apply(variable_list&& grads) override {
    const at::NoGradGuard no_grad;
    if (grads[0].defined()) {
      gradient_ = gradient_.defined() ? gradient_ + grads[0] : std::move(grads[0]);
    }
    return {};
  }
  std::string name() const override { return "input"; }

 private:
  at::Tensor& gradient_;
};

/// Gives a graph's end its gradient, and keeps none of it. `start`: what the engine is to give it instead.
class OutputNode final : public Node {
 public:
  OutputNode(const torch::autograd::Edge& from, at::Tensor gradient, const at::Tensor& start)
      : gradient_(std::move(gradient)) {
    add_next_edge(from);
    add_input_metadata(start);
  }
  variable_list apply(variable_list&&) override { return {std::exchange(gradient_, {})}; }
  std::string name() const override { return "output"; }

 private:
  at::Tensor gradient_;
};

bool is_one_of(const Tensors& tensors, const at::Tensor& t) {
  return std::any_of(tensors.begin(), tensors.end(), [&](const at::Tensor& o) { return o.is_same(t); });
}

}  // namespace

/// What a scope has sent, so that operators that keep the same tensor, or dense views of it, share one copy.
class KeepOnHost::Sent {
 public:
  std::shared_ptr<HostCopy> copy_of(const at::Tensor& tensor) {
    Entry& entry = entries_[tensor.storage().unsafeGetStorageImpl()];
    if (!entry.is_of(tensor)) {
      entry = {tensor.storage().getWeakStorageImpl(), tensor.storage_offset(), tensor.numel(),
               tensor.is_contiguous(), std::make_shared<HostCopy>(tensor)};
    }
    entry.copy->add_reader();
    return entry.copy;
  }

 private:
  struct Entry {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage{c10::intrusive_ptr<c10::StorageImpl>()};
    std::int64_t offset = 0;
    std::int64_t elements = 0;
    bool is_dense = false;  ///< in the order of the storage: only then may views of other shapes read it
    std::shared_ptr<HostCopy> copy;

    /// A storage that is gone may have had the address of another.
    bool is_of(const at::Tensor& tensor) const {
      return copy != nullptr && !storage.expired() && offset == tensor.storage_offset() &&
             elements == tensor.numel() && is_dense && tensor.is_contiguous();
    }
  };
  std::unordered_map<const c10::StorageImpl*, Entry> entries_;
};

namespace {

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
      saved_.push_back({{}, nullptr, {}, std::move(maker), tensor.output_nr()});
    } else if (belongs_on_host(tensor)) {
      saved_.push_back({{}, keeps_on_host->copy_of(tensor), tensor.sizes().vec(), nullptr, 0});
    } else {
      saved_.push_back({SavedVariable(tensor, own), nullptr, {}, nullptr, 0});
    }
  }
}

}  // namespace

KeepOnHost::KeepOnHost()
    : sent_(std::make_unique<Sent>()), before_(std::exchange(keeps_on_host, sent_.get())) {}
KeepOnHost::~KeepOnHost() {
  keeps_on_host = before_;
}

KeepLess::KeepLess() : before_(std::exchange(keeps_less, true)) {}
KeepLess::~KeepLess() {
  keeps_less = before_;
}

at::Tensor begin_graph(const at::Tensor& x, at::Tensor& gradient) {
  at::Tensor input = x.detach();
  auto node = c10::make_intrusive<InputNode>(gradient);
  const auto output = node->add_input_metadata(input);
  torch::autograd::impl::set_gradient_edge(input, {std::move(node), output});
  return input;
}

void backward_from(const torch::autograd::Edge& from, at::Tensor gradient) {
  const at::Tensor start = at::empty({0});
  auto node = c10::make_intrusive<OutputNode>(from, std::move(gradient), start);
  torch::autograd::Engine::get_default_engine().execute({{std::move(node), 0}}, {start}, /*keep_graph=*/false,
                                                        /*create_graph=*/false, /*accumulate_grad=*/true);
}

std::uint64_t reserve_turns(std::uint64_t count) {
  const std::uint64_t first = at::sequence_number::get_and_increment();
  for (std::uint64_t i = 1; i < count; ++i) {
    at::sequence_number::get_and_increment();
  }
  return first;
}

std::uint64_t weights_turn_of(const at::Tensor& x) {
  const auto* maker = x.defined() ? dynamic_cast<const OperatorNode*>(x.grad_fn().get()) : nullptr;
  return maker != nullptr ? maker->weights_turn() : 0;
}

void attach(const std::string& name, const Tensors& inputs, Tensors& outputs, const Tensors& saved,
            Backward backward, AttachOptions options) {
  const bool needed = at::GradMode::is_enabled() &&
                      std::any_of(inputs.begin(), inputs.end(),
                                  [](const at::Tensor& t) { return t.defined() && t.requires_grad(); });
  if (!needed) {
    return;
  }
  if (!keeps_less && !options.always_again) {
    options.again = nullptr;
  }
  auto node = c10::make_intrusive<OperatorNode>(name, std::move(backward), std::move(options));
  node->set_next_edges(torch::autograd::collect_next_edges(inputs));
  for (at::Tensor& output : outputs) {
    torch::autograd::set_history(output, node);
  }
  node->save(saved, outputs);
}

}  // namespace ndmesh::nn
