#pragma once

#include <nlohmann/json.hpp>

#include "ndmesh/plan/search/answer.h"

namespace ndmesh::cli {

/// The document of `ndmesh plan --json`: keys as stated in docs/formats.md.
nlohmann::ordered_json to_json(const plan::TrainingAnswer& answer, bool with_explanation);

}  // namespace ndmesh::cli
