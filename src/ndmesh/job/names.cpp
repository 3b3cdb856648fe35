#include "ndmesh/job/names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

namespace ndmesh::job {
namespace {

constexpr std::array<std::string_view, 3> offloads = {"none", "optimizer", "all"};
constexpr std::array<std::string_view, 4> contexts = {"ring", "allgather", "alltoall", "hierarchical"};
constexpr std::array<std::string_view, 3> optimizers = {"adamw", "sgd", "muon"};
constexpr std::array<std::string_view, 5> policies = {"none", "selective", "full", "every", "budget"};
constexpr std::array<std::string_view, 4> weights = {"bfloat16", "fp8", "int8", "int4"};
constexpr std::array<std::string_view, 4> caches = {"float32", "bfloat16", "fp8", "int8"};
constexpr std::array<std::string_view, 3> kv_policies = {"reserve", "paged", "prefix"};

}  // namespace

std::string_view name_of(Offload offload) {
  return offloads.at(static_cast<std::size_t>(offload));
}

std::string_view name_of(ContextKind kind) {
  return contexts.at(static_cast<std::size_t>(kind));
}

std::string_view name_of(OptimizerName name) {
  return optimizers.at(static_cast<std::size_t>(name));
}

std::string_view name_of(Recompute::Policy policy) {
  return policies.at(static_cast<std::size_t>(policy));
}

std::string_view name_of(WeightFormat format) {
  return weights.at(static_cast<std::size_t>(format));
}

std::string_view name_of(KvFormat format) {
  return caches.at(static_cast<std::size_t>(format));
}

std::string_view name_of(KvPolicy policy) {
  return kv_policies.at(static_cast<std::size_t>(policy));
}

std::string yaml_of(const StageLayers& cut) {
  switch (cut.policy) {
    case StageLayers::Policy::even:
      return "even";
    case StageLayers::Policy::cost:
      return "cost";
    case StageLayers::Policy::memory:
      return "memory";
    case StageLayers::Policy::given:
      break;
  }
  return fmt::format("[{}]", fmt::join(cut.layers, ", "));
}

std::string yaml_of(const Recompute& recompute) {
  switch (recompute.policy) {
    case Recompute::Policy::every:
      return fmt::format("{{every: {}}}", recompute.layers);
    case Recompute::Policy::budget:
      return fmt::format("{{budget: {}}}", recompute.bytes);
    default:
      return std::string(name_of(recompute.policy));
  }
}

}  // namespace ndmesh::job
