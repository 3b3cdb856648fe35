#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ndmesh/plan/profile/constants.h"
#include "ndmesh/plan/search/held.h"
#include "ndmesh/plan/search/judge.h"

namespace ndmesh::plan {

struct SearchResult {
  std::int64_t legal = 0;      ///< candidates that broke no rule
  std::int64_t judged = 0;     ///< all, by rule, bound or simulation
  std::int64_t simulated = 0;  ///< survivors
  double seconds = 0;
  std::vector<Plan> plans;  ///< best first; those that do not fit after, by least excess
};

/// The best candidate of each of the `top` best meshes: those that fit by step time, exposed communication
/// breaking ties; where fewer fit, the meshes that need the least memory. Every candidate of the space
/// (Space) is decided: by a mesh rule, by MemoryModel::least_bytes, by TimeModel::least_seconds against the
/// best so far, or by simulation; the result is that of simulating all of them (tested). Uses all cores; the
/// same on any number of them. RequestError with every broken rule when what is held is impossible by itself,
/// or nothing is legal.
SearchResult search(const Problem& problem, const Constants& constants, const Held& held, std::int64_t top);

}  // namespace ndmesh::plan
