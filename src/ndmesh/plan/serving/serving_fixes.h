#pragma once

#include <vector>

#include "ndmesh/plan/serving/serving.h"

namespace ndmesh::plan {

/// Ways in which a question that no plan answers is answered, each judged: weights or cache in fewer bits, a
/// shorter context, fewer sequences at once, the mesh left open, a smaller prefill; two together where none
/// is enough alone; and the fewest devices. `plans` are those that do not fit. Adds to `answer` the fixes,
/// and a warning where the cluster cannot be thought larger.
void add_serving_fixes(const ServingQuestion& question, const std::vector<ServingPlan>& plans,
                       ServingAnswer& answer);

/// The fitting plans of a question, best first, then the others by least excess, as answer_serving has them
/// but without levels and reasons; at most `top`. Counts into `answer`.
std::vector<ServingPlan> ranked_plans(const ServingQuestion& question, std::int64_t top,
                                      ServingAnswer& answer);

}  // namespace ndmesh::plan
