#include "ndmesh/parallel/fully_shard.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "ndmesh/base/error.h"
#include "ndmesh/nn/ports.h"
#include "ndmesh/parallel/parameters.h"
#include "ndmesh/parallel/sharded_unit.h"

namespace ndmesh::parallel {
namespace {

using UnitPointer = std::shared_ptr<ShardedUnit>;

/// The units of one root: decides when each gathers, frees and reduces.
class FullySharded final : public DataParallel {
 public:
  FullySharded(std::vector<UnitPointer> units, UnitPointer root, const ShardOptions& options);
  ~FullySharded() override;

  const std::vector<UnitPointer>& units() const { return units_; }
  void describe(const torch::nn::Module& module, const mesh::Mesh& mesh, comm::Group& group);
  bool taken() const { return taken_; }
  /// An outer module's handle coordinates the units from now on.
  void hand_over();

  at::Tensor enter(ShardedUnit& unit, const at::Tensor& x);
  at::Tensor leave(ShardedUnit& unit, const at::Tensor& y);

  std::vector<Trainable>& trainables() override;
  void begin_micro_batch(bool last) override;
  void finish_backward() override;
  void parameters_changed() override;
  at::Tensor gather_value(const Trainable& t) override { return gather(t.value, t, "value of "); }
  at::Tensor gather_gradient(const Trainable& t) override { return gather(t.gradient, t, "gradient of "); }

 private:
  bool stays_gathered(const ShardedUnit& unit) const;
  void prefetch(const ShardedUnit& from, int direction);
  void before_backward(ShardedUnit& unit);
  void gradients_ready(ShardedUnit& unit, std::vector<at::Tensor> gradients);
  void finish_pending();
  at::Tensor gather(const at::Tensor& owned, const Trainable& trainable, const std::string& label);

  std::vector<UnitPointer> units_;  ///< bottom-up, root last
  UnitPointer root_;  ///< keeps its parameters from forward to backward; may be null: it has none
  ShardOptions options_;
  comm::Group* group_ = nullptr;
  std::vector<Trainable> trainables_;
  std::vector<ShardedUnit*> order_;  ///< as the first step's forward entered them: what to prefetch
  bool order_known_ = false;
  ShardedUnit* pending_ = nullptr;  ///< its reduction runs while the next unit computes
  bool last_ = true;
  bool taken_ = false;
  bool handed_over_ = false;
};

FullySharded::FullySharded(std::vector<UnitPointer> units, UnitPointer root, const ShardOptions& options)
    : units_(std::move(units)), root_(std::move(root)), options_(options) {
  for (const UnitPointer& unit : units_) {
    unit->set_events(
        {[this](ShardedUnit& u) { before_backward(u); },
         [this](ShardedUnit& u, std::vector<at::Tensor> g) { gradients_ready(u, std::move(g)); }});
  }
}

FullySharded::~FullySharded() {
  hand_over();
}

void FullySharded::hand_over() {
  for (const UnitPointer& unit : units_) {
    unit->set_events({});
  }
  units_.clear();
  handed_over_ = true;
}

std::string common_prefix(const std::vector<std::string>& names) {
  std::string prefix = names.front();
  for (const std::string& name : names) {
    const auto differs = std::mismatch(prefix.begin(), prefix.end(), name.begin(), name.end());
    prefix.erase(differs.first, prefix.end());
  }
  const auto dot = prefix.rfind('.');
  return dot == std::string::npos ? "root" : prefix.substr(0, dot);
}

void FullySharded::describe(const torch::nn::Module& module, const mesh::Mesh& mesh, comm::Group& group) {
  group_ = &group;
  struct Place {
    ShardedUnit* unit;
    std::size_t index;
  };
  std::unordered_map<const c10::TensorImpl*, Place> places;
  for (const UnitPointer& unit : units_) {
    for (std::size_t i = 0; i < unit->parameters().size(); ++i) {
      places[unit->parameters()[i].tensor.unsafeGetTensorImpl()] = {unit.get(), i};
    }
  }
  std::unordered_map<ShardedUnit*, std::vector<std::string>> names;
  for (const NamedParameter& p : distinct_parameters(module)) {
    const Place place = places.at(p.tensor.unsafeGetTensorImpl());
    layout::TensorLayout layout(p.tensor.sizes().vec(), {layout::Placement::shard(mesh::shard_axes, 0)},
                                mesh);
    trainables_.push_back({p.name, std::move(layout), place.unit->value(place.index),
                           place.unit->gradient(place.index), p.tensor.dim() > 1});
    names[place.unit].push_back(p.name);
  }
  for (const auto& [unit, unit_names] : names) {
    unit->set_label(unit == root_.get() ? "root" : common_prefix(unit_names));
  }
}

// ---------------------------------------------------------------------------------------------- forward

at::Tensor FullySharded::enter(ShardedUnit& unit, const at::Tensor& x) {
  unit.finish_gather();
  if (at::GradMode::is_enabled()) {
    unit.connect();
  }
  if (!order_known_ && std::find(order_.begin(), order_.end(), &unit) == order_.end()) {
    order_.push_back(&unit);
  }
  if (order_known_) {
    prefetch(unit, +1);
  }
  return x;
}

at::Tensor FullySharded::leave(ShardedUnit& unit, const at::Tensor& y) {
  const bool backward_follows = at::GradMode::is_enabled() && y.requires_grad();
  if (!backward_follows || !stays_gathered(unit)) {
    unit.free_gathered();
  }
  return backward_follows ? unit.announce_backward(y) : y;
}

bool FullySharded::stays_gathered(const ShardedUnit& unit) const {
  const bool is_last = order_known_ && &unit == order_.back();  // its backward comes next
  return !options_.reshard_after_forward || &unit == root_.get() || is_last;
}

void FullySharded::prefetch(const ShardedUnit& from, int direction) {
  const auto at = std::find(order_.begin(), order_.end(), &from) - order_.begin();
  for (std::int64_t ahead = 1; ahead <= options_.prefetch; ++ahead) {
    const std::int64_t next = at + direction * ahead;
    if (next >= 0 && next < static_cast<std::int64_t>(order_.size())) {
      order_[static_cast<std::size_t>(next)]->start_gather();
    }
  }
}

// --------------------------------------------------------------------------------------------- backward

void FullySharded::begin_micro_batch(bool last) {
  finish_pending();  // by the rules of the micro-batch that it came from
  last_ = last;
}

void FullySharded::before_backward(ShardedUnit& unit) {
  unit.finish_gather();
  prefetch(unit, -1);
}

void FullySharded::gradients_ready(ShardedUnit& unit, std::vector<at::Tensor> gradients) {
  if (options_.reshard_after_forward || last_) {
    unit.free_gathered();
  }
  finish_pending();
  unit.start_reduce(std::move(gradients));
  pending_ = &unit;
}

void FullySharded::finish_pending() {
  if (pending_ == nullptr) {
    return;
  }
  pending_->finish_reduce();
  if (last_) {
    pending_->start_replica_reduce();
  }
  pending_ = nullptr;
}

void FullySharded::finish_backward() {
  finish_pending();
  for (const UnitPointer& unit : units_) {
    unit->free_gathered();
    unit->disconnect();
    unit->settle();
    unit->start_replica_reduce();  // of those that took no part in this backward
  }
  for (const UnitPointer& unit : units_) {
    unit->finish_replica_reduce();
  }
  order_known_ = !order_.empty();
}

void FullySharded::parameters_changed() {
  for (const UnitPointer& unit : units_) {
    unit->forget_gradients();
  }
}

// ------------------------------------------------------------------------------------------ trainables

std::vector<Trainable>& FullySharded::trainables() {
  if (handed_over_) {
    throw RunError(
        "fully_shard: this handle's module is now a unit of the module around it: use the handle of the "
        "root");
  }
  taken_ = true;
  return trainables_;
}

at::Tensor FullySharded::gather(const at::Tensor& owned, const Trainable& trainable,
                                const std::string& label) {
  at::Tensor full = at::empty(trainable.layout.shape(), owned.options());
  group_->all_gather({full}, {owned}, label + trainable.name);
  return full;
}

/// What is stored with a unit: its handle, and whoever coordinates it now.
struct Attachment {
  std::shared_ptr<FullySharded> own;
  UnitPointer unit;
  FullySharded* coordinator = nullptr;
};

nn::Unit& as_unit(torch::nn::Module& module) {
  auto* unit = dynamic_cast<nn::Unit*>(&module);
  if (unit == nullptr) {
    throw RunError(
        fmt::format("fully_shard: module {} is no nn::Unit: derive it from ndmesh::nn::Unit too and call "
                    "enter first and leave last in its forward",
                    module.name()));
  }
  if (unit->attachment != nullptr) {
    throw RunError(fmt::format("fully_shard: module {} is laid out already", module.name()));
  }
  return *unit;
}

/// Units already made below `module`, in order of registration.
std::vector<std::shared_ptr<Attachment>> attachments_below(torch::nn::Module& module) {
  std::vector<std::shared_ptr<Attachment>> found;
  for (const auto& child : module.modules(/*include_self=*/false)) {
    auto* unit = dynamic_cast<nn::Unit*>(child.get());
    if (unit == nullptr || unit->attachment == nullptr) {
      continue;
    }
    auto attachment = std::static_pointer_cast<Attachment>(unit->attachment);
    if (attachment->own != nullptr && attachment->own->taken()) {
      throw RunError(
          fmt::format("fully_shard: an optimizer was built for {} before the module around it was sharded: "
                      "shard the root first, then build the optimizer from its trainables",
                      child->name()));
    }
    found.push_back(std::move(attachment));
  }
  return found;
}

}  // namespace

std::shared_ptr<DataParallel> fully_shard(torch::nn::Module& module, comm::Communicator& communicator,
                                          const ShardOptions& options) {
  nn::Unit& ports = as_unit(module);
  const auto below = attachments_below(module);
  std::vector<UnitPointer> units;
  std::unordered_map<const c10::TensorImpl*, bool> claimed;
  for (const auto& attachment : below) {
    if (attachment->own != nullptr) {
      attachment->own->hand_over();
      attachment->own.reset();
    }
    if (attachment->unit != nullptr) {
      units.push_back(attachment->unit);
      for (const NamedParameter& p : attachment->unit->parameters()) {
        claimed[p.tensor.unsafeGetTensorImpl()] = true;
      }
    }
  }
  std::vector<NamedParameter> left;
  for (const NamedParameter& p : distinct_parameters(module)) {
    if (!claimed.contains(p.tensor.unsafeGetTensorImpl())) {
      left.push_back(p);
    }
  }
  auto attachment = std::make_shared<Attachment>();
  if (!left.empty()) {
    attachment->unit = std::make_shared<ShardedUnit>(std::move(left), communicator);
    units.push_back(attachment->unit);
  }
  auto handle = std::make_shared<FullySharded>(std::move(units), attachment->unit, options);
  handle->describe(module, communicator.mesh(), communicator.group(mesh::shard_axes));
  attachment->own = handle;
  attachment->coordinator = handle.get();
  for (const auto& inner : below) {
    inner->coordinator = handle.get();
  }
  if (Attachment* a = attachment.get(); a->unit != nullptr) {
    ports.enter.attach([a](const at::Tensor& x) { return a->coordinator->enter(*a->unit, x); });
    ports.leave.attach([a](const at::Tensor& y) { return a->coordinator->leave(*a->unit, y); });
  }
  ports.attachment = attachment;
  return handle;
}

}  // namespace ndmesh::parallel
