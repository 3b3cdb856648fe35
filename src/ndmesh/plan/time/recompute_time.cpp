#include "ndmesh/plan/time/recompute_time.h"

#include "ndmesh/plan/memory/activation_bytes.h"

namespace ndmesh::plan {

std::vector<RecomputedBlocks> recomputed_blocks(const Problem& problem, const Candidate& candidate,
                                                const std::vector<layout::Range>& cut) {
  const schedule::Shape shape = schedule_shape(problem, candidate);
  const Activations activations = activations_of(problem, candidate, problem.model.vocab);
  const UnitCounter counter(problem);
  std::vector<RecomputedBlocks> by_rank;
  for (std::int64_t rank = 0; rank < shape.ranks; ++rank) {
    const StageUnits units = counter.units_of(shape, cut, rank);
    by_rank.push_back({kept_on(units, activations, candidate.recompute).recomputed, units.blocks()});
  }
  return by_rank;
}

}  // namespace ndmesh::plan
