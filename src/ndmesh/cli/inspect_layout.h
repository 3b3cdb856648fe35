#pragma once

#include <cstdint>
#include <optional>

#include "ndmesh/mesh/mesh.h"
#include "ndmesh/model/model_spec.h"

namespace ndmesh::cli {

/// Writes to standard output which rank holds what of every parameter: local shapes, boxes in local memory,
/// bytes, and the axes of gradient reduction and norm. Of `rank`, or else of rank 0 and of the first rank
/// that holds most. Text folds layers that are equal; JSON, one document, has every parameter. RequestError
/// for a rank outside the mesh and for a mesh that the model cannot be split over.
void print_layout(const model::ModelSpec& model, const mesh::Mesh& mesh, std::optional<std::int64_t> rank,
                  bool json);

}  // namespace ndmesh::cli
