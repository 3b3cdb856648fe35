#include "ndmesh/plan/profile/profile.h"

#include "ndmesh/plan/profile/memory_profiles.h"

namespace ndmesh::plan {

Profile profile(std::string_view name) {
  const Runtime runtime = runtime_from_name(name);
  return {.name = std::string(name),
          .memory = memory_profile(runtime),
          .time = time_profile(runtime),
          .support = support_of(runtime)};
}

}  // namespace ndmesh::plan
