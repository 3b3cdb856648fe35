#pragma once

#include <cstdint>
#include <string>

#include "ndmesh/model/model_spec.h"

namespace ndmesh::cli {

/// Writes to standard output what the model is made of: its sizes, every parameter (layers and experts
/// grouped), the exact counts (all, active, of multi-token prediction), whether they are estimated, what
/// keeps it from running, bytes by format, and the FLOPs of a token in training at `seq_len`. As text, or as
/// one JSON document.
void print_model(const std::string& name, const model::ModelSpec& model, std::int64_t seq_len, bool json);

/// Families that run and families that are only planned.
void print_families(bool json);

}  // namespace ndmesh::cli
