#include "ndmesh/parallel/sharded_unit.h"

#include <ATen/Functions.h>
#include <ATen/SequenceNumber.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <exception>
#include <span>
#include <utility>

#include "ndmesh/base/error.h"
#include "ndmesh/base/memory_category.h"
#include "ndmesh/base/race_visibility.h"
#include "ndmesh/layout/layout.h"
#include "ndmesh/nn/autograd.h"
#include "ndmesh/nn/host_memory.h"
#include "ndmesh/nn/kernels.h"
#include "ndmesh/nn/parameter.h"
#include "ndmesh/nn/parameter_node.h"
#include "ndmesh/nn/withheld_gradients.h"

namespace ndmesh::parallel {
namespace {

using torch::autograd::variable_list;

/// Stands for "all-gather" in the graph: the full parameters are its outputs, so autograd brings it their
/// gradients, summed over all uses, and in the right order. It has no inputs: the owned parts get their
/// gradients from the reduction.
class GatherNode final : public nn::ParameterNode {
 public:
  enum class Turn { last, at_once };

  /// Of what is ready, autograd runs first what was made last. `at_once`: before all of it. `withheld`: backward has
  /// passed, but the gradients come later.
  GatherNode(Turn turn, std::function<void(variable_list)> receive, std::function<void()> withheld = {})
      : ParameterNode(turn == Turn::at_once ? UINT64_MAX : at::sequence_number::get_and_increment()),
        receive_(std::move(receive)),
        withheld_(std::move(withheld)) {}

  variable_list apply(variable_list&& gradients) override {
    const at::NoGradGuard no_grad;
    if (nn::WithheldGradients::current() == nullptr) {
      receive_(std::move(gradients));
    } else if (withheld_) {
      withheld_();
    }
    return {};
  }
  std::string name() const override { return "gather"; }

 private:
  std::function<void(variable_list)> receive_;
  std::function<void()> withheld_;
};

void check_dims(std::span<const NamedParameter> parameters) {
  for (const NamedParameter& p : parameters) {
    if (p.tensor.dim() == 0) {
      throw RunError(fmt::format("parameter {} is a scalar: only tensors with a dim can be sharded", p.name));
    }
  }
}

/// Makes `parameter` an output of `node`.
void set_source(const at::Tensor& parameter, const c10::intrusive_ptr<torch::autograd::Node>& node) {
  const auto output = node->add_input_metadata(parameter);
  torch::autograd::impl::set_gradient_edge(parameter, {node, output});
}

/// `x`, with a node that calls `action` when backward passes it.
at::Tensor when_backward_passes(const at::Tensor& x, const char* name, std::function<void()> action) {
  std::vector<at::Tensor> outputs = {x.detach()};
  nn::attach(name, {x}, outputs, {},
             [action = std::move(action)](const auto&, const auto& gradients, const auto&) {
               action();
               return gradients;
             });
  return outputs[0];
}

Shapes owned_shapes(Shapes shapes, const comm::Group& group) {
  for (auto& shape : shapes) {
    shape[0] = layout::split(shape[0], group.size(), group.rank()).size;
  }
  return shapes;
}

}  // namespace

ShardedUnit::ShardedUnit(std::vector<NamedParameter> parameters, comm::Communicator& communicator,
                         std::int64_t zero, job::Offload offload)
    : parameters_(std::move(parameters)),
      trained_(trained_count(parameters_)),
      shard_(communicator.group(mesh::shard_axes)),
      replicas_(communicator.mesh().size(mesh::Axis::dp_replicate) > 1
                    ? &communicator.group({mesh::Axis::dp_replicate})
                    : nullptr),
      zero_(zero),
      offload_(offload),
      values_on_host_(offload == job::Offload::all ||
                      (offload == job::Offload::optimizer && zero < 3 &&
                       parameters_.front().tensor.scalar_type() == at::kBFloat16)) {
  check_dims(parameters_);
  const at::NoGradGuard no_grad;
  const FlatPlan plan = plan_flat(shapes_of(parameters_));
  full_ = nn::unmaterialised({plan.elements}, parameters_.front().tensor.scalar_type()).detach();
  if (zero_ < 3) {
    const MemoryScope scope(MemoryCategory::parameters);
    nn::take_memory(full_);
  }
  make_values();
  make_gradients();
  send_values_of_first_rank(communicator);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    nn::place(parameters_[i].tensor, full_, plan.offsets[i]);
  }
  if (zero_ == 3) {
    state_ = State::here;
    free_gathered();
  }
}

/// Values that the optimizer changes: a flat storage of their own, unless they are rows of what compute reads. Frozen
/// ones need no wide copy.
void ShardedUnit::make_values() {
  const at::ScalarType compute = full_.scalar_type();
  const at::ScalarType wide = nn::wide_dtype(compute);
  if (zero_ < 3) {
    values_ = owned_rows(views_of(full_, shapes_of(parameters_)));
  }
  if (zero_ == 3) {
    const MemoryScope scope(MemoryCategory::parameters);
    const HostMemoryScope host(all_on_host());
    own_values(0, trained_, wide);
    own_values(trained_, parameters_.size(), compute);
  } else if (wide != compute) {
    const MemoryScope scope(MemoryCategory::master_weights);
    const HostMemoryScope host(values_on_host_);
    own_values(0, trained_, wide);
  }
}

void ShardedUnit::own_values(std::size_t first, std::size_t end, at::ScalarType dtype) {
  const auto some = std::span(parameters_).subspan(first, end - first);
  const Flat flat = make_flat(owned_shapes(shapes_of(some), shard_), dtype);
  values_.resize(parameters_.size());
  std::copy(flat.views.begin(), flat.views.end(), values_.begin() + static_cast<std::ptrdiff_t>(first));
}

void ShardedUnit::make_gradients() {
  const MemoryScope scope(MemoryCategory::gradients);
  const HostMemoryScope host(all_on_host());
  const at::ScalarType wide = nn::wide_dtype(full_.scalar_type());
  const Shapes full = shapes_of(std::span(parameters_).first(trained_));
  if (zero_ == 1) {
    whole_gradients_ = make_flat(full, wide);
    whole_gradients_.whole.zero_();
    gradients_.views = owned_rows(whole_gradients_.views);
  } else {
    gradients_ = make_flat(owned_shapes(full, shard_), wide);
  }
}

std::vector<at::Tensor> ShardedUnit::owned_rows(const std::vector<at::Tensor>& full) const {
  std::vector<at::Tensor> owned;
  for (const at::Tensor& tensor : full) {
    const layout::Range rows = layout::split(tensor.size(0), shard_.size(), shard_.rank());
    owned.push_back(tensor.narrow(0, rows.start, rows.size));
  }
  return owned;
}

ShardedUnit::~ShardedUnit() {
  disconnect();
  if (std::uncaught_exceptions() > 0) {
    return;  // the run is ending, peers may never come
  }
  try {
    settle();               // peers may still read the values
  } catch (const Error&) {  // a verdict: whoever waits next is told
  }
}

void ShardedUnit::send_values_of_first_rank(comm::Communicator& communicator) {
  comm::Group& everyone = communicator.group(mesh::loss_axes);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (nn::has_memory(parameters_[i].tensor)) {
      const at::Tensor full = parameters_[i].tensor.detach().contiguous();  // it may be a transposed view
      everyone.broadcast({full}, 0, "initial " + parameters_[i].name);
      const at::Tensor owned = owned_rows({full})[0];
      if (is_value_on_host(i)) {
        nn::copy_to_host(values_[i], owned);
      } else {
        values_[i].copy_(owned);
      }
    }
  }
}

std::vector<at::Tensor> ShardedUnit::full_views() const {
  std::vector<at::Tensor> views;
  for (const NamedParameter& p : parameters_) {
    views.push_back(p.tensor.detach());
  }
  return views;
}

void ShardedUnit::start_gather() {
  if (state_ != State::away) {
    return;
  }
  settle();
  if (zero_ == 3) {
    const MemoryScope scope(MemoryCategory::gathered);
    nn::take_memory(full_);
  }
  gather_ = shard_.start_all_gather(full_views(), values_on_host_ ? values_from_host() : values_,
                                    label_ + " parameters");
  state_ = State::coming;
}

/// The owned rows of the full parameters, with the values that are in host memory. Written behind autograd's back, as a gather
/// writes: what forward has kept of the parameters counts as unchanged.
std::vector<at::Tensor> ShardedUnit::values_from_host() const {
  std::vector<at::Tensor> rows = owned_rows(views_of(full_, shapes_of(parameters_)));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (is_value_on_host(i)) {
      nn::copy_to_device(rows[i], values_[i]);
    }
  }
  return rows;
}

void ShardedUnit::finish_gather() {
  start_gather();
  if (state_ == State::coming) {
    gather_.wait();
    state_ = State::here;
  }
}

void ShardedUnit::free_gathered() {
  if (state_ == State::away) {
    return;
  }
  finish_gather();
  if (zero_ < 3) {
    return;
  }
  if (all_on_host()) {
    settle();  // peers read the owned rows in the memory that goes now
  }
  nn::drop_memory(full_,
                  fmt::format("{}: its parameters are sharded and not gathered now; they can be read only "
                              "between enter and leave of the unit, and in its backward",
                              label_));
  state_ = State::away;
}

void ShardedUnit::values_changed() {
  note_written(values_);
  free_gathered();
  state_ = State::away;
}

std::int64_t ShardedUnit::gathered_bytes() const {
  return zero_ == 3 ? static_cast<std::int64_t>(full_.storage().nbytes()) : 0;
}

void ShardedUnit::settle() {
  if (gather_.started()) {
    gather_.release();
  }
}

void ShardedUnit::connect() {
  if (connected_ || trained_ == 0) {
    return;  // a further use in the same forward: the nodes wait for the gradients of all of them
  }
  connected_ = true;
  zero_ == 1 ? connect_each() : connect_all();
}

/// One node for all parameters: it is reached when all of their gradients are there.
void ShardedUnit::connect_all() {
  // A parameter holds the node, so the node must not hold its unit.
  const auto receive = [unit = weak_from_this()](variable_list gradients) {
    if (const auto alive = unit.lock()) {
      alive->connected_ = false;
      alive->events_.gradients_ready(*alive, std::move(gradients));
    }
  };
  const auto withheld = [unit = weak_from_this()] {
    if (const auto alive = unit.lock()) {
      alive->connected_ = false;
      alive->events_.after_backward(*alive);
    }
  };
  auto node = c10::make_intrusive<GatherNode>(GatherNode::Turn::last, receive, withheld);
  for (std::size_t i = 0; i < trained_; ++i) {
    set_source(parameters_[i].tensor, node);
  }
}

/// A node for each parameter: whole gradients take in each one as it comes, so that it need not wait for the others.
void ShardedUnit::connect_each() {
  for (std::size_t i = 0; i < trained_; ++i) {
    auto node = c10::make_intrusive<GatherNode>(GatherNode::Turn::at_once,
                                                [unit = weak_from_this(), i](variable_list gradients) {
                                                  if (const auto alive = unit.lock()) {
                                                    alive->take_in(i, gradients[0]);
                                                  }
                                                });
    set_source(parameters_[i].tensor, node);
  }
}

void ShardedUnit::take_in(std::size_t parameter, const at::Tensor& gradient) {
  if (gradient.defined()) {
    whole_gradients_.views[parameter].add_(gradient);
  }
  has_gradients_ = true;
  if (++arrived_ == trained_) {
    arrived_ = 0;
    connected_ = false;
    events_.gradients_ready(*this, {});
  }
}

at::Tensor ShardedUnit::announce_backward(const at::Tensor& y) {
  ++uses_;
  return when_backward_passes(y, "regather", [unit = weak_from_this()] {
    if (const auto alive = unit.lock()) {
      --alive->uses_;
      alive->arrived_ = 0;
      alive->events_.before_backward(*alive);
    }
  });
}

at::Tensor ShardedUnit::announce_end_of_backward(const at::Tensor& x) {
  return when_backward_passes(x, "backward done", [unit = weak_from_this()] {
    if (const auto alive = unit.lock()) {
      alive->events_.after_backward(*alive);
    }
  });
}

void ShardedUnit::disconnect() {
  connected_ = false;
  uses_ = 0;
  for (NamedParameter& p : parameters_) {
    if (p.tensor.grad_fn()) {
      torch::autograd::impl::set_gradient_edge(p.tensor, {});
    }
  }
}

void ShardedUnit::complete(std::vector<at::Tensor>& gradients) const {
  const MemoryScope scope(MemoryCategory::buffers);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const at::Tensor& parameter = parameters_[i].tensor;
    gradients[i] = gradients[i].defined() ? gradients[i].contiguous()
                                          : at::zeros(parameter.sizes(), parameter.options());
  }
}

void ShardedUnit::start_reduce(std::vector<at::Tensor> gradients, bool last) {
  if (zero_ > 1) {
    complete(gradients);
    adds_ = std::exchange(has_gradients_, true);
    const bool here = !all_on_host();
    if (!here) {
      make_arriving();
    }
    reduce_ = shard_.start_reduce_scatter(here ? gradients_.views : arriving_.views, std::move(gradients),
                                          here && adds_, label_ + " gradients");
  } else if (last) {
    start_whole_reduce();
  }
}

/// Into this rank's own rows of the whole gradients.
void ShardedUnit::start_whole_reduce() {
  reduce_ = shard_.start_reduce_scatter(gradients_.views, whole_gradients_.views, /*accumulate=*/false,
                                        label_ + " gradients");
  reduced_ = true;
}

void ShardedUnit::reduce_rest() {
  if (zero_ == 1 && has_gradients_ && !reduced_) {
    start_whole_reduce();
    finish_reduce();
  }
}

void ShardedUnit::finish_reduce() {
  if (!reduce_.started()) {
    return;
  }
  reduce_.release();
  if (all_on_host()) {
    take_arriving();
  }
}

void ShardedUnit::make_arriving() {
  const MemoryScope scope(MemoryCategory::buffers);
  const Shapes full = shapes_of(std::span(parameters_).first(trained_));
  arriving_ = make_flat(owned_shapes(full, shard_), gradients_.whole.scalar_type());
}

void ShardedUnit::take_arriving() {
  if (adds_) {
    nn::add_to_host(gradients_.whole, arriving_.whole);
  } else {
    nn::copy_to_host(gradients_.whole, arriving_.whole);
  }
  arriving_ = {};
}

void ShardedUnit::start_replica_reduce() {
  if (summed_over_replicas_) {
    return;
  }
  summed_over_replicas_ = true;
  if (!has_gradients_ && zero_ > 1) {
    gradients_.whole.zero_();
    has_gradients_ = true;
  }
  if (replicas_ != nullptr && trained_ > 0) {
    auto owned = zero_ > 1 ? std::vector<at::Tensor>{gradients_.whole} : gradients_.views;
    if (all_on_host()) {
      make_arriving();
      nn::copy_to_device(arriving_.whole, gradients_.whole);
      owned = {arriving_.whole};
    }
    replica_reduce_ = replicas_->start_all_reduce(owned, comm::Reduction::sum, label_ + " gradients");
  }
}

void ShardedUnit::forget_gradients() {
  has_gradients_ = false;
  reduced_ = false;
  summed_over_replicas_ = false;
  if (zero_ == 1) {
    whole_gradients_.whole.zero_();
  }
}

void ShardedUnit::finish_replica_reduce() {
  if (!replica_reduce_.started()) {
    return;
  }
  replica_reduce_.release();
  if (all_on_host()) {
    adds_ = false;
    take_arriving();
  }
}

}  // namespace ndmesh::parallel
