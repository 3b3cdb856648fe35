#pragma once

#include "ndmesh/mesh/mesh.h"
#include "ndmesh/model/model_spec.h"

namespace ndmesh::cli {

/// Writes to standard output which rank sits where: sizes, order, the number of ranks in the dense and the
/// expert view, coordinates, and the groups of every axis and of the batch, shard and loss ranks. Text shows
/// the first ranks and groups of a large mesh; JSON, one document, has all. With a model also what the mesh
/// changes for it. RequestError, before anything is written, with every rule that the model breaks on this
/// mesh, and for a mesh of more than 65536 ranks.
void print_mesh(const mesh::Mesh& mesh, const model::ModelSpec* model, bool json);

}  // namespace ndmesh::cli
