#include "ndmesh/parallel/replicate.h"

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "ndmesh/base/error.h"
#include "ndmesh/base/memory_category.h"
#include "ndmesh/nn/host_memory.h"
#include "ndmesh/nn/kernels.h"
#include "ndmesh/nn/parameter.h"
#include "ndmesh/nn/ports.h"
#include "ndmesh/parallel/gather_whole.h"
#include "ndmesh/parallel/parameters.h"

namespace ndmesh::parallel {
namespace {

/// Called when autograd has added to a parameter's gradient.
class AfterAccumulation final : public torch::autograd::PostAccumulateGradHook {
 public:
  explicit AfterAccumulation(std::function<void()> action) : action_(std::move(action)) {}
  void operator()(const torch::autograd::Variable&) override { action_(); }

 private:
  std::function<void()> action_;
};

/// Gradients that travel together: a range of the flat gradient storage.
struct Bucket {
  at::Tensor gradients;
  std::string label;
  std::size_t parameters = 0;
  std::size_t waiting = 0;  ///< parameters whose gradient is still to come in this backward pass
  comm::Work reduction;
};

class Replicated final : public DataParallel {
 public:
  Replicated(torch::nn::Module& module, comm::Communicator& communicator, mesh::AxisSet axes,
             const ReplicateOptions& options);
  ~Replicated() override;

  const std::vector<OwnedParameter>& parameters() override { return owned_; }
  std::vector<Trainable>& trainables() override { return trainables_; }
  void begin_micro_batch(bool last) override;
  void begin_forward() override;
  void begin_backward(bool last) override;
  void finish_backward() override;
  void parameters_changed() override;
  at::Tensor gather_value(const OwnedParameter& p) override {
    return gather_whole(p.value, p.layout, communicator_, "value of " + p.name);
  }
  at::Tensor gather_gradient(const Trainable& t) override {
    return gather_whole(t.gradient, t.layout, communicator_, "gradient of " + t.name);
  }

 private:
  void watch_units(const torch::nn::Module& module);
  void give_memory();
  void make_master_weights();
  void take_values_of_first_rank(const std::vector<bool>& has_values);
  void describe(const ModelLayout* layouts);
  void make_buckets(std::int64_t bucket_bytes);
  void watch(std::size_t parameter, std::size_t bucket);
  void start(Bucket& bucket);
  bool gradients_come_once() const;

  comm::Communicator& communicator_;
  comm::Group* group_;                      ///< null for one rank
  std::vector<NamedParameter> parameters_;  ///< as the module reads them
  std::size_t trained_;                     ///< so many of them, the first
  std::vector<OwnedParameter> owned_;
  std::vector<Trainable> trainables_;
  Flat compute_;  ///< behind parameters_
  Flat master_;   ///< bfloat16: what the optimizer changes instead, of the trained ones; else undefined
  bool values_on_host_;   ///< these
  at::Tensor gradients_;  ///< flat, of the trained ones in reverse order of registration
  std::vector<Bucket> buckets_;
  std::vector<const nn::Unit*> units_;
  std::vector<std::int64_t> passes_before_;  ///< of units_, when the last forward began
  bool last_ = false;
};

Replicated::Replicated(torch::nn::Module& module, comm::Communicator& communicator, mesh::AxisSet axes,
                       const ReplicateOptions& options)
    : communicator_(communicator),
      group_(communicator.mesh().size(axes) > 1 ? &communicator.group(axes) : nullptr),
      parameters_(distinct_parameters({&module})),
      trained_(trained_count(parameters_)),
      values_on_host_(options.offload == job::Offload::optimizer) {
  const at::NoGradGuard no_grad;
  watch_units(module);
  give_memory();
  describe(options.layouts);
  make_buckets(options.bucket_bytes);
}

Replicated::~Replicated() {
  for (NamedParameter& p : parameters_) {  // the hooks point at this object
    p.tensor.mutable_grad().reset();
    torch::autograd::impl::set_post_acc_grad_hooks(p.tensor, nullptr);
  }
}

void Replicated::watch_units(const torch::nn::Module& module) {
  const auto add = [this](const torch::nn::Module& part) {
    if (const auto* unit = dynamic_cast<const nn::Unit*>(&part)) {
      units_.push_back(unit);
    }
  };
  add(module);
  for (const auto& part : module.modules(/*include_self=*/false)) {
    add(*part);
  }
}

void Replicated::give_memory() {
  const Shapes shapes = shapes_of(parameters_);
  const at::ScalarType compute = parameters_.front().tensor.scalar_type();
  {
    const MemoryScope scope(MemoryCategory::parameters);
    compute_ = make_flat(shapes, compute);
  }
  const FlatPlan plan = plan_flat(shapes);
  std::vector<bool> has_values;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& parameter = parameters_[i].tensor;
    has_values.push_back(nn::has_memory(parameter));
    if (has_values.back()) {
      compute_.views[i].copy_(parameter);
    }
    nn::place(parameter, compute_.whole, plan.offsets[i]);
  }
  if (nn::wide_dtype(compute) != compute) {
    make_master_weights();
  }
  take_values_of_first_rank(has_values);
}

/// Values that only the optimizer reads, beside the bfloat16 ones that compute reads.
void Replicated::make_master_weights() {
  const MemoryScope scope(MemoryCategory::master_weights);
  const HostMemoryScope host(values_on_host_);
  Shapes shapes = shapes_of(parameters_);
  shapes.resize(trained_);
  master_ = make_flat(shapes, nn::wide_dtype(compute_.whole.scalar_type()));
}

/// Of those parameters that have values.
void Replicated::take_values_of_first_rank(const std::vector<bool>& has_values) {
  std::vector<at::Tensor> to_send;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (has_values[i]) {
      to_send.push_back(compute_.views[i]);
    }
  }
  if (!to_send.empty() && group_ != nullptr) {
    group_->broadcast(to_send, 0, "initial values");
  }
  for (std::size_t i = 0; i < master_.views.size(); ++i) {
    if (has_values[i] && values_on_host_) {
      nn::copy_to_host(master_.views[i], compute_.views[i]);
    } else if (has_values[i]) {
      master_.views[i].copy_(compute_.views[i]);
    }
  }
}

void Replicated::describe(const ModelLayout* layouts) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const layout::Shape shape = parameters_[i].tensor.sizes().vec();
    layout::TensorLayout whole(shape, {}, communicator_.mesh());
    layout::TensorLayout layout = layouts != nullptr ? layouts->at(parameters_[i].name).tensor : whole;
    check_owned_shape(parameters_[i].name, shape, layout, communicator_.rank());
    const bool trained = i < trained_;
    const bool has_master = trained && master_.whole.defined();
    owned_.push_back({parameters_[i].name, std::move(layout),
                      has_master ? master_.views[i] : compute_.views[i], has_master && values_on_host_});
    if (trained) {
      trainables_.push_back({owned_.back(), {}, shape.size() > 1});
    }
  }
}

void Replicated::make_buckets(std::int64_t bucket_bytes) {
  Shapes shapes = shapes_of(parameters_);
  shapes.resize(trained_);
  std::reverse(shapes.begin(), shapes.end());  // the last layer's gradients come first
  const at::ScalarType wide = nn::wide_dtype(compute_.whole.scalar_type());
  const FlatPlan plan = plan_flat(shapes);
  {
    const MemoryScope scope(MemoryCategory::gradients);
    gradients_ = at::zeros({plan.elements}, at::TensorOptions().dtype(wide));
  }
  const std::int64_t bucket_elements = bucket_bytes / static_cast<std::int64_t>(c10::elementSize(wide));
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const std::size_t parameter = shapes.size() - 1 - i;
    const at::Tensor view =
        gradients_.narrow(0, plan.offsets[i], c10::multiply_integers(shapes[i])).view(shapes[i]);
    trainables_[parameter].gradient = view;
    parameters_[parameter].tensor.mutable_grad() = view;
    if (buckets_.empty() || plan.offsets[i] - begin >= bucket_elements) {
      begin = plan.offsets[i];
      buckets_.push_back({{}, fmt::format("gradients from {}", parameters_[parameter].name), 0, 0, {}});
    }
    buckets_.back().parameters += 1;
    const std::int64_t end = i + 1 < shapes.size() ? plan.offsets[i + 1] : plan.elements;
    buckets_.back().gradients = gradients_.narrow(0, begin, end - begin);
    watch(parameter, buckets_.size() - 1);
  }
}

void Replicated::watch(std::size_t parameter, std::size_t bucket) {
  if (group_ == nullptr) {
    return;
  }
  auto hook = std::make_unique<AfterAccumulation>([this, bucket] {
    Bucket& b = buckets_[bucket];
    if (last_ && --b.waiting == 0 && gradients_come_once()) {
      start(b);
    }
  });
  torch::autograd::impl::set_post_acc_grad_hooks(parameters_[parameter].tensor, std::move(hook));
}

void Replicated::start(Bucket& bucket) {
  bucket.reduction = group_->start_all_reduce({bucket.gradients}, comm::Reduction::sum, bucket.label);
}

/// Not where a unit whose body runs again in backward was used several times: each run brings its own gradients, so
/// that buckets wait for the end.
bool Replicated::gradients_come_once() const {
  for (std::size_t i = 0; i < units_.size(); ++i) {
    if (units_[i]->around && units_[i]->passes() > passes_before_[i] + 1) {
      return false;
    }
  }
  return true;
}

void Replicated::begin_micro_batch(bool last) {
  begin_forward();
  begin_backward(last);
}

void Replicated::begin_forward() {
  passes_before_.clear();
  for (const nn::Unit* unit : units_) {
    passes_before_.push_back(unit->passes());
  }
}

void Replicated::begin_backward(bool last) {
  last_ = last;
  for (Bucket& bucket : buckets_) {
    bucket.waiting = bucket.parameters;
  }
}

void Replicated::finish_backward() {
  if (group_ == nullptr) {
    return;
  }
  for (Bucket& bucket : buckets_) {
    if (!bucket.reduction.started()) {  // a parameter of it took no part in this backward pass
      start(bucket);
    }
  }
  for (Bucket& bucket : buckets_) {
    bucket.reduction.release();
  }
}

void Replicated::parameters_changed() {
  if (master_.whole.defined()) {
    const at::Tensor trained = compute_.whole.narrow(0, 0, master_.whole.numel());
    if (values_on_host_) {
      nn::copy_to_device(trained, master_.whole);
    } else {
      trained.copy_(master_.whole);
    }
  }
  gradients_.zero_();
}

}  // namespace

std::unique_ptr<DataParallel> replicate(torch::nn::Module& module, comm::Communicator& communicator,
                                        mesh::AxisSet axes, const ReplicateOptions& options) {
  if (options.offload == job::Offload::all) {
    throw RunError(
        "replicate: offload is all; allowed: none, optimizer (all: fully_shard with zero 3, on one rank "
        "too)");
  }
  return std::make_unique<Replicated>(module, communicator, axes, options);
}

}  // namespace ndmesh::parallel
