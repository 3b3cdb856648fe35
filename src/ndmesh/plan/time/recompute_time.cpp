#include "ndmesh/plan/time/recompute_time.h"

#include <numeric>

#include "ndmesh/plan/memory/activation_bytes.h"

namespace ndmesh::plan {
std::vector<double> recomputed_shares(const Problem& problem, const Candidate& candidate) {
  const schedule::Shape shape = schedule_shape(problem, candidate);
  const Activations activations = activations_of(problem, candidate, problem.model.vocab);
  const BlockCounter counter(problem);
  std::vector<double> shares;
  for (std::int64_t rank = 0; rank < shape.ranks; ++rank) {
    const UnitCounts counts = counter.blocks_of(shape, rank);
    const std::int64_t blocks = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    const KeptActivations kept = kept_on(counts, activations, candidate.recompute,
                                         schedule::peak_in_flight(shape, rank), shape.chunks);
    shares.push_back(blocks > 0 ? static_cast<double>(kept.recomputed) / static_cast<double>(blocks) : 0);
  }
  return shares;
}

}  // namespace ndmesh::plan
