#pragma once

#include <cstdint>
#include <vector>

#include "ndmesh/layout/layout.h"
#include "ndmesh/plan/problem.h"

namespace ndmesh::plan {

/// Blocks of one pipeline rank whose forward runs again, and all of them.
struct RecomputedBlocks {
  std::int64_t recomputed = 0;
  std::int64_t of = 0;

  double share() const { return of > 0 ? static_cast<double>(recomputed) / static_cast<double>(of) : 0; }
};

/// Under recompute.policy `budget`, by pipeline rank: as the memory model finds it from the bytes that may be kept.
/// `cut` has every stage's layers.
std::vector<RecomputedBlocks> recomputed_blocks(const Problem& problem, const Candidate& candidate,
                                                const std::vector<layout::Range>& cut);

}  // namespace ndmesh::plan
