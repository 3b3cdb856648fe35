#include "ndmesh/plan/problem.h"

namespace ndmesh::plan {

std::int64_t micro_batches(const Problem& problem, const Candidate& candidate) {
  return problem.global_batch / (candidate.micro * candidate.mesh.dp_replicate * candidate.mesh.dp_shard);
}

schedule::Shape schedule_shape(const Problem& problem, const Candidate& candidate) {
  return {.kind = candidate.schedule,
          .ranks = candidate.mesh.pp,
          .chunks = candidate.chunks,
          .micro_batches = micro_batches(problem, candidate)};
}

}  // namespace ndmesh::plan
