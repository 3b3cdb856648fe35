#pragma once

#include <vector>

#include "ndmesh/plan/problem.h"

namespace ndmesh::plan {

/// Under recompute.policy `budget`: the share of its blocks that each pipeline rank computes again, as the
/// memory model finds it from the bytes that may be kept. By rank.
std::vector<double> recomputed_shares(const Problem& problem, const Candidate& candidate);

}  // namespace ndmesh::plan
