#include "ndmesh/base/memory_category.h"

#include <numeric>
#include <utility>

namespace ndmesh {
namespace {

thread_local MemoryCategory current = MemoryCategory::workspace;
thread_local bool host = false;

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

bool allocates_on_host() {
  return host;
}

HostMemoryScope::HostMemoryScope(bool on_host) : before_(std::exchange(host, host || on_host)) {}

HostMemoryScope::~HostMemoryScope() {
  host = before_;
}

}  // namespace ndmesh
