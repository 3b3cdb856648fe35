#pragma once

namespace ndmesh::plan {

/// How one runtime spends time: which collectives it overlaps with what, bucket sizes, launch cost, what its fused
/// kernels save.
struct TimeProfile {};

}  // namespace ndmesh::plan
