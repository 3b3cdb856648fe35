#pragma once

#include "ndmesh/plan/profile/memory_profile.h"
#include "ndmesh/plan/profile/runtime.h"

namespace ndmesh::plan {

/// docs/memory.md says where each figure comes from.
MemoryProfile memory_profile(Runtime runtime);

}  // namespace ndmesh::plan
