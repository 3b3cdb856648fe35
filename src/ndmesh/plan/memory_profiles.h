#pragma once

#include <string_view>

#include "ndmesh/plan/memory_profile.h"

namespace ndmesh::plan {

/// The profile of a runtime by a name of profile_names(); docs/memory.md says where each figure comes from.
MemoryProfile memory_profile(std::string_view runtime);

}  // namespace ndmesh::plan
