#include "ndmesh/plan/problem.h"

#include <algorithm>

#include "ndmesh/schedule/schedule_file.h"

namespace ndmesh::plan {

PipelineList pipeline_list(const job::PipelineSection& pipeline) {
  PipelineList list = {.schedule = pipeline.list, .file = pipeline.file, .in_flight = {}};
  if (!pipeline.list) return list;
  for (std::int64_t rank = 0; rank < pipeline.list->shape.ranks; ++rank) {
    list.in_flight.push_back(schedule::most_in_flight(*pipeline.list, rank));
    const auto& actions = pipeline.list->ranks[static_cast<std::size_t>(rank)];
    list.splits_backward = list.splits_backward ||
                           std::any_of(actions.begin(), actions.end(), [](const schedule::Action& action) {
                             return action.kind == schedule::ActionKind::weight_grad;
                           });
  }
  return list;
}

std::int64_t micro_batches(const Problem& problem, const Candidate& candidate) {
  return problem.global_batch / (candidate.micro * candidate.mesh.batch_ranks());
}

bool runs_list(const Problem& problem, const Candidate& candidate) {
  return problem.list.schedule && candidate.mesh.pp > 1;
}

bool splits_backward(const Problem& problem, const Candidate& candidate) {
  return candidate.mesh.pp > 1 && (problem.list.schedule ? problem.list.splits_backward
                                                         : schedule::splits_backward(candidate.schedule));
}

schedule::Shape schedule_shape(const Problem& problem, const Candidate& candidate) {
  return {.kind = candidate.schedule,
          .ranks = candidate.mesh.pp,
          .chunks = candidate.chunks,
          .micro_batches = micro_batches(problem, candidate)};
}

std::int64_t peak_in_flight(const Problem& problem, const schedule::Shape& shape, std::int64_t rank) {
  return problem.list.schedule && shape.ranks > 1 ? problem.list.in_flight[static_cast<std::size_t>(rank)]
                                                  : schedule::peak_in_flight(shape, rank);
}

std::int64_t peak_in_flight(const Problem& problem, const schedule::Shape& shape, std::int64_t rank,
                            std::span<const std::int64_t> weights) {
  return problem.list.schedule && shape.ranks > 1
             ? schedule::most_in_flight(*problem.list.schedule, rank, weights)
             : schedule::peak_in_flight(shape, rank, weights);
}

}  // namespace ndmesh::plan
