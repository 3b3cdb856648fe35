#include "ndmesh/plan/time/recompute_time.h"

#include <numeric>

#include "ndmesh/plan/memory/activation_bytes.h"

namespace ndmesh::plan {

std::vector<RecomputedBlocks> recomputed_blocks(const Problem& problem, const Candidate& candidate) {
  const schedule::Shape shape = schedule_shape(problem, candidate);
  const Activations activations = activations_of(problem, candidate, problem.model.vocab);
  const BlockCounter counter(problem);
  std::vector<RecomputedBlocks> by_rank;
  for (std::int64_t rank = 0; rank < shape.ranks; ++rank) {
    const UnitCounts counts = counter.blocks_of(shape, rank);
    const KeptActivations kept =
        kept_on(counts, activations, candidate.recompute, peak_in_flight(problem, shape, rank), shape.chunks);
    by_rank.push_back({kept.recomputed, std::accumulate(counts.begin(), counts.end(), std::int64_t{0})});
  }
  return by_rank;
}

}  // namespace ndmesh::plan
