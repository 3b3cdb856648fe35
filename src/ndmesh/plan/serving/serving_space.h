#pragma once

#include <cstdint>
#include <vector>

#include "ndmesh/plan/serving/serving.h"

namespace ndmesh::plan {

struct ServingSpace {
  std::int64_t judged = 0;     ///< shapes looked at
  std::vector<Replica> legal;  ///< those that break no rule and fit on the cluster by their number of ranks
};

/// Every shape of a replica on the question's cluster, what is held held. The experts of a MoE stage are
/// spread over all its ranks: ep x etp = tp x attention ranks. RequestError with everything that is wrong
/// with the question: lengths, policy, mesh rules, too few devices for what is held.
ServingSpace serving_space(const ServingQuestion& question);

}  // namespace ndmesh::plan
