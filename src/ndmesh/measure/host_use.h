#pragma once

#include <cstdint>

#include "ndmesh/base/memory_category.h"

namespace ndmesh::measure {

/// Host memory of the rank that used most of it in a step, and what crossed between it and the device, in bytes; all 0
/// unless something is offloaded.
struct HostUse {
  MemoryBytes memory;     ///< each category's own peak
  std::int64_t peak = 0;  ///< of the sum of categories
  std::int64_t to_host = 0;
  std::int64_t to_device = 0;
};

}  // namespace ndmesh::measure
