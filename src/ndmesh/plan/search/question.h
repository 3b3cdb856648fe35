#pragma once

#include <string>
#include <vector>

#include "ndmesh/plan/search/held.h"

namespace ndmesh::plan {

/// What a job asks of the planner.
struct TrainingQuestion {
  Problem problem;
  Held held;
  std::int64_t max_batch = 0;        ///< sequences up to which global_batch may grow; at least global_batch
  double tokens_per_second = 0;      ///< wanted of the whole cluster; 0: as many as it gives
  std::vector<std::string> assumed;  ///< what the job left open and is no matter of search, one sentence each
};

/// `job` with its model and cluster as a question: keys that are given are held, those left out are searched
/// (mesh, micro-batch, schedule, zero, recompute) or assumed. RequestError for an impossible wish.
TrainingQuestion training_question(const job::Job& job, const model::ModelSpec& model,
                                   const cluster::Cluster& cluster);

}  // namespace ndmesh::plan
