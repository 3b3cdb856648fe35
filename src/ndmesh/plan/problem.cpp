#include "ndmesh/plan/problem.h"

#include <algorithm>

namespace ndmesh::plan {

std::int64_t micro_batches(const Problem& problem, const Candidate& candidate) {
  return problem.global_batch / (candidate.micro * candidate.mesh.batch_ranks());
}

schedule::Shape schedule_shape(const Problem& problem, const Candidate& candidate) {
  return {.kind = candidate.schedule,
          .ranks = candidate.mesh.pp,
          .chunks = candidate.chunks,
          .micro_batches = micro_batches(problem, candidate)};
}

std::int64_t peak_in_flight(const Problem& problem, const schedule::Shape& shape, std::int64_t rank) {
  return problem.in_flight.empty() ? schedule::peak_in_flight(shape, rank)
                                   : problem.in_flight[static_cast<std::size_t>(rank)];
}

layout::Range stage_layers(const Problem& problem, const schedule::Shape& shape, std::int64_t stage) {
  if (!problem.stages.empty()) {
    return problem.stages[static_cast<std::size_t>(stage)];
  }
  const std::int64_t layers = problem.model.layers;
  if (!problem.ends_are_layers || shape.ranks == 1) {
    return layout::stage_layers(layers, shape.stages(), stage);
  }
  const layout::Range slots = layout::stage_layers(layers + 2, shape.stages(), stage);
  const std::int64_t first = std::clamp<std::int64_t>(slots.start - 1, 0, layers);
  const std::int64_t end = std::clamp<std::int64_t>(slots.start + slots.size - 1, 0, layers);
  return {.start = first, .size = end - first};
}

}  // namespace ndmesh::plan
