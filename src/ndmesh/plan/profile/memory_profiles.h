#pragma once

#include "ndmesh/plan/profile/memory_profile.h"
#include "ndmesh/plan/profile/runtime.h"

namespace ndmesh::plan {

/// docs/memory.md says where each figure comes from.
MemoryProfile memory_profile(Runtime runtime);

/// `profile` with what a process on an accelerator takes beside its tensors, whatever the runtime: PyTorch's
/// caching allocator, the device's context, communicators.
MemoryProfile on_cuda(MemoryProfile profile);

}  // namespace ndmesh::plan
