#include "ndmesh/parallel/sharded_module.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <unordered_map>

#include "ndmesh/base/error.h"
#include "ndmesh/nn/host_memory.h"
#include "ndmesh/parallel/gather_whole.h"
#include "ndmesh/parallel/parameters.h"

namespace ndmesh::parallel {
namespace {

std::string common_prefix(const std::vector<std::string>& names) {
  std::string prefix = names.front();
  for (const std::string& name : names) {
    const auto differs = std::mismatch(prefix.begin(), prefix.end(), name.begin(), name.end());
    prefix.erase(differs.first, prefix.end());
  }
  const auto dot = prefix.rfind('.');
  return dot == std::string::npos ? "root" : prefix.substr(0, dot);
}

void note(std::vector<ShardedUnit*>& order, ShardedUnit& unit) {
  if (std::find(order.begin(), order.end(), &unit) == order.end()) {
    order.push_back(&unit);
  }
}

}  // namespace

ShardedModule::ShardedModule(std::vector<UnitPointer> units, UnitPointer root, const ShardOptions& options)
    : units_(std::move(units)), root_(std::move(root)), options_(options) {
  for (const UnitPointer& unit : units_) {
    unit->set_events({[this](ShardedUnit& u) { before_backward(u); },
                      [this](ShardedUnit& u, std::vector<at::Tensor> g) { gradients_ready(u, std::move(g)); },
                      [this](ShardedUnit& u) { after_backward(u); }});
  }
}

ShardedModule::~ShardedModule() {
  hand_over();
}

void ShardedModule::hand_over() {
  for (const UnitPointer& unit : units_) {
    unit->set_events({});
  }
  units_.clear();
  handed_over_ = true;
}

void ShardedModule::describe(const torch::nn::Module& module, comm::Communicator& communicator) {
  communicator_ = &communicator;
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
  for (const NamedParameter& p : distinct_parameters({&module})) {
    const Place place = places.at(p.tensor.unsafeGetTensorImpl());
    const layout::TensorLayout by_rows(p.tensor.sizes().vec(),
                                       {layout::Placement::shard(mesh::shard_axes, 0)}, communicator.mesh());
    layout::TensorLayout layout = options_.layouts != nullptr ? options_.layouts->at(p.name).tensor : by_rows;
    check_owned_shape(p.name, place.unit->value(place.index).sizes().vec(), layout, communicator.rank());
    owned_.push_back({p.name, std::move(layout), place.unit->value(place.index),
                      place.unit->is_value_on_host(place.index)});
    if (place.index < place.unit->trained()) {
      trainables_.push_back(
          {owned_.back(), place.unit->gradient(place.index), p.tensor.dim() > 1, place.unit->all_on_host()});
    }
    names[place.unit].push_back(p.name);
  }
  for (const auto& [unit, unit_names] : names) {
    unit->set_label(unit == root_.get() ? "root" : common_prefix(unit_names));
  }
}

// ---------------------------------------------------------------------------------------------- forward

at::Tensor ShardedModule::enter(ShardedUnit& unit, const at::Tensor& x) {
  unit.finish_gather();
  if (at::GradMode::is_enabled()) {
    unit.connect();
  }
  if (!order_known_) {
    note(entered_, unit);
  } else if (!in_backward_) {  // where a forward runs again, backward says what comes next
    prefetch(entered_, unit, +1);
  }
  const bool all_frozen = unit.trained() == 0;
  return all_frozen && at::GradMode::is_enabled() && x.requires_grad() ? unit.announce_end_of_backward(x) : x;
}

at::Tensor ShardedModule::leave(ShardedUnit& unit, const at::Tensor& y) {
  if (!order_known_) {
    note(left_, unit);
  }
  const bool backward_follows = at::GradMode::is_enabled() && y.requires_grad();
  if (!backward_follows || !stays_gathered(unit)) {
    unit.free_gathered();
  }
  return backward_follows ? unit.announce_backward(y) : y;
}

bool ShardedModule::stays_gathered(const ShardedUnit& unit) const {
  const auto last =
      std::find_if(left_.rbegin(), left_.rend(), [&](ShardedUnit* u) { return u != root_.get(); });
  const bool backward_comes_next =
      backward_is_next_ && order_known_ && last != left_.rend() && *last == &unit;
  return held_ || !options_.reshard_after_forward || &unit == root_.get() || backward_comes_next ||
         in_backward_;
}

std::int64_t ShardedModule::gathered_bytes() const {
  std::int64_t bytes = 0;
  for (const UnitPointer& unit : units_) {
    bytes += unit->is_gathered() ? unit->gathered_bytes() : 0;
  }
  return bytes;
}

void ShardedModule::prefetch(const std::vector<ShardedUnit*>& order, const ShardedUnit& from, int direction) {
  const auto at = std::find(order.begin(), order.end(), &from) - order.begin();
  for (std::int64_t ahead = 1; ahead <= options_.prefetch; ++ahead) {
    const std::int64_t next = at + direction * ahead;
    if (next < 0 || next >= static_cast<std::int64_t>(order.size())) {
      return;
    }
    ShardedUnit& unit = *order[static_cast<std::size_t>(next)];
    if (options_.gathered_limit > 0 && !unit.is_gathered() &&
        gathered_bytes() + unit.gathered_bytes() > options_.gathered_limit) {
      return;
    }
    unit.start_gather();
  }
}

// --------------------------------------------------------------------------------------------- backward

void ShardedModule::begin_micro_batch(bool last) {
  begin_forward();
  backward_is_next_ = true;
  last_ = last;
}

void ShardedModule::begin_forward() {
  finish_pending();
  in_backward_ = false;
  backward_is_next_ = false;
  for (const UnitPointer& unit : units_) {
    unit->begin_forward();
  }
}

void ShardedModule::begin_backward(bool last) {
  finish_pending();
  in_backward_ = false;
  last_ = last;
}

void ShardedModule::before_backward(ShardedUnit& unit) {
  in_backward_ = true;
  unit.finish_gather();
  prefetch(left_, unit, -1);
}

void ShardedModule::after_backward(ShardedUnit& unit) {
  if (!held_ && (options_.reshard_after_forward || last_)) {
    unit.free_gathered();
  }
}

void ShardedModule::gradients_ready(ShardedUnit& unit, std::vector<at::Tensor> gradients) {
  after_backward(unit);
  finish_pending();
  const bool last = last_ && !unit.has_uses_to_come();
  unit.start_reduce(std::move(gradients), last);
  pending_ = &unit;
  pending_is_last_ = last;
}

void ShardedModule::finish_pending() {
  if (pending_ == nullptr) {
    return;
  }
  pending_->finish_reduce();
  if (pending_is_last_) {
    start_replica_reduce(*pending_);
  }
  pending_ = nullptr;
}

void ShardedModule::start_replica_reduce(ShardedUnit& unit) {
  if (unit.all_on_host() && replica_reducing_ != nullptr) {
    replica_reducing_->finish_replica_reduce();  // of what is away, one unit is here at a time
  }
  unit.start_replica_reduce();
  replica_reducing_ = &unit;
}

void ShardedModule::finish_backward() {
  finish_pending();
  in_backward_ = false;
  for (const UnitPointer& unit : units_) {
    unit->free_gathered();
    unit->disconnect();
    unit->settle();
    unit->reduce_rest();  // of those that took no part in this backward
    start_replica_reduce(*unit);
  }
  for (const UnitPointer& unit : units_) {
    unit->finish_replica_reduce();
  }
  replica_reducing_ = nullptr;
  order_known_ = !entered_.empty();
}

void ShardedModule::unshard() {
  held_ = true;
  if (root_ != nullptr) {
    root_->start_gather();  // a forward reads it first
  }
  for (const UnitPointer& unit : units_) {
    unit->start_gather();
  }
}

void ShardedModule::reshard() {
  held_ = false;
  for (const UnitPointer& unit : units_) {
    unit->free_gathered();
  }
}

void ShardedModule::parameters_changed() {
  for (const UnitPointer& unit : units_) {
    unit->forget_gradients();
    unit->values_changed();
  }
}

// ------------------------------------------------------------------------------------------ trainables

void ShardedModule::take() {
  if (handed_over_) {
    throw RunError(
        "fully_shard: this handle's module is now a unit of the module around it: use the handle of the "
        "root");
  }
  taken_ = true;
}

const std::vector<OwnedParameter>& ShardedModule::parameters() {
  take();
  return owned_;
}

std::vector<Trainable>& ShardedModule::trainables() {
  take();
  return trainables_;
}

at::Tensor ShardedModule::gather(const at::Tensor& owned, bool on_host, const OwnedParameter& parameter,
                                 const std::string& label) {
  return gather_whole(on_host ? nn::brought_to_device(owned) : owned, parameter.layout, *communicator_,
                      label + parameter.name);
}

}  // namespace ndmesh::parallel
