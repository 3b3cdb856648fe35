#pragma once

#include <cstdint>

#include "ndmesh/layout/layout.h"

namespace ndmesh::layout {

/// What of a decoder one rank builds: the layers of a pipeline chunk, and of each layer what tp leaves it. Widths are of
/// this rank; everything not named is whole.
struct ModelPart {
  Range layers;            ///< of the model
  bool embeds = true;      ///< begins with tokens: has the tables that embed them
  bool has_head = true;    ///< ends with the final norm and the head
  std::int64_t heads = 0;  ///< query heads
  std::int64_t kv_heads = 0;
  std::int64_t ffn = 0;
  Range vocabulary;                  ///< real rows of table and head
  std::int64_t vocabulary_rows = 0;  ///< of those, with padding
  /// Between the parts that tp cuts, hidden states hold 1 of `sequence_parts` equal parts of each sequence.
  std::int64_t sequence_parts = 1;
  std::int64_t sequence_part = 0;
};

/// All of it.
ModelPart whole_part(const model::ModelSpec& spec);

/// What tp leaves of all layers on `rank`, as parameter_layouts cuts them. `sequence_parallel`: hidden states between
/// the cut parts are cut over tp too. `mesh` has passed the mesh rules.
ModelPart tensor_part(const model::ModelSpec& spec, const mesh::Mesh& mesh, std::int64_t rank,
                      bool sequence_parallel);

}  // namespace ndmesh::layout
