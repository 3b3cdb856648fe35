#include "ndmesh/plan/profile/runtime.h"

#include <algorithm>
#include <array>

#include "ndmesh/base/error.h"
#include "ndmesh/base/nearest.h"
#include "ndmesh/base/text.h"

namespace ndmesh::plan {
namespace {

/// By Runtime.
constexpr std::array<std::string_view, 5> names = {"ndmesh", "megatron", "torchtitan", "deepspeed",
                                                   "accelerate"};

}  // namespace

std::string_view name_of(Runtime runtime) {
  return names.at(static_cast<std::size_t>(runtime));
}

Runtime runtime_from_name(std::string_view name) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) {
    throw RequestError("plan.runtime: no runtime is named " + shown(name) +
                       "; runtimes: " + join(runtime_names()) + did_you_mean(name, runtime_names()));
  }
  return static_cast<Runtime>(found - names.begin());
}

std::vector<std::string> runtime_names() {
  return {names.begin(), names.end()};
}

}  // namespace ndmesh::plan
