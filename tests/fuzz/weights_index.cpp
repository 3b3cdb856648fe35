#include "ndmesh/train/weights_index.h"
#include "fuzz/target.h"

/// The index of a sharded checkpoint.
void ndmesh::fuzz::one_input(std::string_view bytes) {
  train::parse_weights_index(bytes, "model.safetensors.index.json");
}
