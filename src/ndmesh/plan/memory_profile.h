#pragma once

namespace ndmesh::plan {

/// How one runtime spends bytes: copies of a parameter by zero stage and precision, what each op saves, buckets,
/// what is gathered at a time, overheads outside the allocator.
struct MemoryProfile {};

}  // namespace ndmesh::plan
