#include "ndmesh/layout/model_part.h"

#include <algorithm>

#include "ndmesh/layout/cut.h"

namespace ndmesh::layout {

ModelPart whole_part(const model::ModelSpec& spec) {
  return {.layers = {0, spec.layers},
          .heads = spec.heads,
          .kv_heads = spec.kv_heads,
          .ffn = spec.ffn,
          .vocabulary = {0, spec.vocab},
          .vocabulary_rows = spec.vocab};
}

ModelPart tensor_part(const model::ModelSpec& spec, const mesh::Mesh& mesh, std::int64_t rank,
                      bool sequence_parallel) {
  const std::int64_t ranks = mesh.size(mesh::Axis::tp);
  const std::int64_t index = mesh.coordinate(rank, mesh::Axis::tp);
  ModelPart part = whole_part(spec);
  part.heads = split(spec.heads, ranks, index).size;
  part.kv_heads = spec.kv_heads * ranks_per_unit(spec.kv_heads, ranks) / ranks;
  part.ffn = split(spec.ffn, ranks, index).size;
  const Ranges rows = cut(Placement::padded({mesh::Axis::tp}, 0, ranks), {{0, spec.vocab}}, ranks, index);
  part.vocabulary_rows = extent(rows);
  part.vocabulary = without_padding(rows, spec.vocab).front();
  if (sequence_parallel) {
    part.sequence_parts = ranks;
    part.sequence_part = index;
  }
  return part;
}

}  // namespace ndmesh::layout
