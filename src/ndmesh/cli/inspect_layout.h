#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ndmesh/layout/layout.h"

namespace ndmesh::cli {

/// Writes to standard output which rank holds what of every parameter: local shapes, boxes in local memory,
/// bytes, and the axes of gradient reduction and norm. Of `rank`, or else of rank 0 and of the first rank
/// that holds most. Text folds layers that are equal; JSON, one document, has every parameter. RequestError
/// for a rank outside the mesh.
void print_layout(const std::vector<layout::ParameterLayout>& parameters, const mesh::Mesh& mesh,
                  std::optional<std::int64_t> rank, bool json);

}  // namespace ndmesh::cli
