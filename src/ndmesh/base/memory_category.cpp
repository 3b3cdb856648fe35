#include "ndmesh/base/memory_category.h"

#include <numeric>

namespace ndmesh {
namespace {

thread_local MemoryCategory current = MemoryCategory::workspace;

}  // namespace

std::int64_t MemoryBytes::total() const {
  return std::accumulate(by_category.begin(), by_category.end(), std::int64_t{0});
}

MemoryCategory current_memory_category() {
  return current;
}

MemoryScope::MemoryScope(MemoryCategory category) : before_(current) {
  current = category;
}

MemoryScope::~MemoryScope() {
  current = before_;
}

}  // namespace ndmesh
