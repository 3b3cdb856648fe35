#include "ndmesh/model/config.h"
#include "fuzz/target.h"

/// A Hugging Face config.json, and what follows from it.
void ndmesh::fuzz::one_input(std::string_view bytes) {
  const model::ModelSpec spec = model::spec_from_config(bytes, "config.json");
  // What was read describes a model: these must not overflow or divide by zero.
  spec.parameter_count();
  model::flops_per_token(spec, 128);
}
