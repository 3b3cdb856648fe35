#include "ndmesh/plan/profile.h"

#include "ndmesh/base/error.h"
#include "ndmesh/base/nearest.h"
#include "ndmesh/base/text.h"
#include "ndmesh/plan/memory_profiles.h"

namespace ndmesh::plan {

std::vector<std::string> profile_names() {
  return {"ndmesh", "megatron", "torchtitan", "deepspeed", "accelerate"};
}

Profile profile(std::string_view name) {
  for (const std::string& known : profile_names()) {
    if (known == name) {
      return {.name = known,
              .memory = memory_profile(name),
              .time = time_profile(name),
              .support = support_of(name)};
    }
  }
  const std::string text(name);
  throw RequestError("plan.runtime: no runtime is named " + shown(text) +
                     "; runtimes: " + join(profile_names()) + did_you_mean(text, profile_names()));
}

}  // namespace ndmesh::plan
