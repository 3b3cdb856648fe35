#pragma once

#include "ndmesh/plan/memory_profile.h"
#include "ndmesh/plan/runtime.h"

namespace ndmesh::plan {

/// docs/memory.md says where each figure comes from.
MemoryProfile memory_profile(Runtime runtime);

}  // namespace ndmesh::plan
