#pragma once

#include <cstdint>

#include "ndmesh/plan/serving/serving.h"

namespace ndmesh::cli {

/// How `ndmesh plan` shows its answer.
struct PlanServeOptions {
  std::int64_t top = 10;  ///< plans that are shown
  bool explain = false;   ///< reasons of every plan, not of the first only
  bool json = false;      ///< one JSON document instead of a table
};

/// Answers the question and writes to standard output. Returns the program's status: done, also when nothing
/// fits.
int plan_serve(const plan::ServingQuestion& question, const PlanServeOptions& options);

}  // namespace ndmesh::cli
