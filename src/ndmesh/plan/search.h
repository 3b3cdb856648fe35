#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ndmesh/plan/constants.h"
#include "ndmesh/plan/problem.h"
#include "ndmesh/plan/step_time.h"
#include "ndmesh/plan/training_memory.h"

namespace ndmesh::plan {

/// What is held and what is searched: a value holds, nothing leaves it open.
struct Held {
  std::optional<std::int64_t> tp, cp, dp_shard, dp_replicate, pp, ep, etp, micro, chunks, zero;
  std::optional<schedule::Kind> schedule;
  std::optional<bool> reshard;
  std::optional<job::Recompute> recompute;
  std::optional<mesh::AxisOrder> order;
  job::Offload offload = job::Offload::none;  ///< never searched: a fix, unless asked for
};

/// A judged candidate.
struct Plan {
  Candidate candidate;
  StageBudget worst;
  bool fits = false;
  StepTime time;
  std::vector<std::string> levels;   ///< by mesh::Axis: name of the level its groups sit on; empty for size 1
  std::vector<std::string> reasons;  ///< one a used axis: what it relieves here, in numbers
};

struct SearchResult {
  std::int64_t legal = 0;      ///< candidates that broke no rule
  std::int64_t judged = 0;     ///< all, by rule, bound or simulation
  std::int64_t simulated = 0;  ///< survivors
  double seconds = 0;
  std::vector<Plan> plans;  ///< best first; those that do not fit after, by least excess
};

/// Every legal candidate of the space, pruned exactly: by rule, by MemoryModel::least_bytes, by
/// TimeModel::least_seconds against the `top` best so far. Uses all cores. RequestError with every broken rule when
/// what is held is impossible by itself.
SearchResult search(const Problem& problem, const Constants& constants, const Held& held, std::int64_t top);

}  // namespace ndmesh::plan
