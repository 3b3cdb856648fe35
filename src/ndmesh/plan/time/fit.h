#pragma once

#include <vector>

#include "ndmesh/plan/problem.h"
#include "ndmesh/plan/profile/constants.h"

namespace ndmesh::plan {

/// One measured step.
struct Observation {
  Problem problem;
  Candidate candidate;
  double seconds = 0;  ///< of the step, above 0
};

/// The constants under which TimeModel meets `observations` best: damped least squares of the logarithms of
/// the step times, weighed robustly (no single row decides). Every constant is held towards its value in
/// `start` by its `spread`, so that few rows cannot run wild; constants of spread 0 stay. Without
/// observations the result is `start`. RequestError when a measured time is not positive, or TimeModel
/// refuses a problem.
Constants fit(const std::vector<Observation>& observations, const Constants& start);

}  // namespace ndmesh::plan
