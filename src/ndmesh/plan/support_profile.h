#pragma once

namespace ndmesh::plan {

/// Which meshes, schedules and levers one runtime supports.
struct SupportProfile {};

}  // namespace ndmesh::plan
