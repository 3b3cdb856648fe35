#pragma once

#include <vector>

#include "ndmesh/layout/layout.h"

namespace ndmesh::layout {

/// RequestError with everything that keeps `placements` from cutting a tensor of `shape`: the rules of
/// TensorLayout.
void check_layout(const Shape& shape, const std::vector<Placement>& placements, const mesh::Mesh& mesh);

}  // namespace ndmesh::layout
