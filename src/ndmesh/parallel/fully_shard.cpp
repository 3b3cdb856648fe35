#include "ndmesh/parallel/fully_shard.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "ndmesh/base/error.h"
#include "ndmesh/job/names.h"
#include "ndmesh/nn/ports.h"
#include "ndmesh/parallel/parameters.h"
#include "ndmesh/parallel/sharded_module.h"
#include "ndmesh/parallel/unit.h"

namespace ndmesh::parallel {
namespace {

/// What is stored with a unit: its handle, and whoever coordinates it now. Modules that are one unit share it.
struct Attachment {
  std::shared_ptr<ShardedModule> own;
  UnitPointer unit;  ///< null when units below have all parameters
  ShardedModule* coordinator = nullptr;

  ShardedModule& coordinating() const {
    if (coordinator == nullptr) {
      throw RunError("fully_shard_together: shard the root before its first forward");
    }
    return *coordinator;
  }
};

nn::Unit& as_free_unit(torch::nn::Module& module) {
  nn::Unit& unit = as_unit(module, "fully_shard");
  if (unit.attachment != nullptr) {
    throw RunError(fmt::format("fully_shard: module {} is laid out already", module.name()));
  }
  return unit;
}

using Attachments = std::vector<std::shared_ptr<Attachment>>;

/// Units already made below `module`, in order of registration.
Attachments attachments_below(torch::nn::Module& module) {
  Attachments found;
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
    if (std::find(found.begin(), found.end(), attachment) == found.end()) {
      found.push_back(std::move(attachment));
    }
  }
  return found;
}

/// Units of `below` become the new handle's; what is left of `module`'s parameters.
std::vector<NamedParameter> claim(const Attachments& below, torch::nn::Module& module,
                                  std::vector<UnitPointer>& units) {
  std::unordered_set<const c10::TensorImpl*> claimed;
  for (const auto& attachment : below) {
    if (attachment->own != nullptr) {
      attachment->own->hand_over();
      attachment->own.reset();
    }
    if (attachment->unit != nullptr) {
      units.push_back(attachment->unit);
      for (const NamedParameter& p : attachment->unit->parameters()) {
        claimed.insert(p.tensor.unsafeGetTensorImpl());
      }
    }
  }
  std::vector<NamedParameter> left = distinct_parameters({&module});
  std::erase_if(left,
                [&](const NamedParameter& p) { return claimed.contains(p.tensor.unsafeGetTensorImpl()); });
  return left;
}

void check_options(const Attachments& below, const ShardOptions& options) {
  const std::int64_t zero = options.zero;
  if (zero < 1 || zero > 3) {
    throw RunError(fmt::format("fully_shard: zero is {}; allowed: 1 to 3 (0 is replicate)", zero));
  }
  if (options.offload == job::Offload::all && zero < 3) {
    throw RunError(
        fmt::format("fully_shard: offload is all with zero {}, where parameters never go away; allowed: zero "
                    "3, or offload optimizer",
                    zero));
  }
  for (const auto& attachment : below) {
    const ShardedUnit* unit = attachment->unit.get();
    if (unit != nullptr && unit->zero() != zero) {
      throw RunError(fmt::format(
          "fully_shard: zero is {} at the root but {} for a unit below; allowed: the same for all", zero,
          unit->zero()));
    }
    if (unit != nullptr && unit->offload() != options.offload) {
      throw RunError(fmt::format(
          "fully_shard: offload is {} at the root but {} for a unit below; allowed: the same for all",
          job::name_of(options.offload), job::name_of(unit->offload())));
    }
  }
}

/// The unit gathers where `first` begins, and is done where `last` ends.
void attach_ports(const std::shared_ptr<Attachment>& attachment, nn::Unit& first, nn::Unit& last) {
  Attachment* a = attachment.get();
  if (a->unit == nullptr) {
    return;
  }
  first.enter.attach([a](const at::Tensor& x) { return a->coordinating().enter(*a->unit, x); });
  last.leave.attach([a](const at::Tensor& y) { return a->coordinating().leave(*a->unit, y); });
}

}  // namespace

std::shared_ptr<DataParallel> fully_shard(torch::nn::Module& module, comm::Communicator& communicator,
                                          const ShardOptions& options) {
  nn::Unit& ports = as_free_unit(module);
  const Attachments below = attachments_below(module);
  check_options(below, options);
  std::vector<UnitPointer> units;
  std::vector<NamedParameter> left = claim(below, module, units);
  auto attachment = std::make_shared<Attachment>();
  if (!left.empty()) {
    attachment->unit =
        std::make_shared<ShardedUnit>(std::move(left), communicator, options.zero, options.offload);
    units.push_back(attachment->unit);
  }
  auto handle = std::make_shared<ShardedModule>(std::move(units), attachment->unit, options);
  handle->describe(module, communicator);
  attachment->own = handle;
  attachment->coordinator = handle.get();
  for (const auto& inner : below) {
    inner->coordinator = handle.get();
  }
  attach_ports(attachment, ports, ports);
  ports.attachment = attachment;
  return handle;
}

void fully_shard_together(const std::vector<torch::nn::Module*>& modules, comm::Communicator& communicator,
                          const ShardOptions& options) {
  if (modules.empty()) {
    throw RunError("fully_shard_together: no module is given");
  }
  check_options({}, options);
  std::vector<nn::Unit*> ports;
  for (torch::nn::Module* module : modules) {
    ports.push_back(&as_free_unit(*module));
    if (!attachments_below(*module).empty()) {
      throw RunError(fmt::format("fully_shard_together: module {} has units below; allowed: modules without",
                                 module->name()));
    }
  }
  auto attachment = std::make_shared<Attachment>();
  attachment->unit = std::make_shared<ShardedUnit>(distinct_parameters({modules.begin(), modules.end()}),
                                                   communicator, options.zero, options.offload);
  attach_ports(attachment, *ports.front(), *ports.back());
  for (nn::Unit* unit : ports) {
    unit->attachment = attachment;
  }
}

}  // namespace ndmesh::parallel
