#pragma once

#include <string>
#include <vector>

#include "ndmesh/plan/serving/serving_judge.h"

namespace ndmesh::plan {

/// For each used axis what it cuts and relieves, in numbers. `smaller` is the best plan with more replicas
/// that does not fit, or nullptr.
std::vector<std::string> serving_reasons(const ServingQuestion& question, const ServingJudge& judge,
                                         const ServingPlan& plan, const ServingPlan* smaller);

/// What is doubtful about a plan or about what it was asked.
std::vector<Warning> serving_warnings(const ServingQuestion& question, const ServingPlan& plan);

}  // namespace ndmesh::plan
