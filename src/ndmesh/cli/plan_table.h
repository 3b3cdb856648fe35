#pragma once

#include "ndmesh/plan/search/answer.h"

namespace ndmesh::cli {

/// Prints an answer for people: what was asked, the ranked table, the best plan in full, baselines, warnings,
/// fixes.
void print_answer(const plan::TrainingAnswer& answer, bool with_explanation);

}  // namespace ndmesh::cli
