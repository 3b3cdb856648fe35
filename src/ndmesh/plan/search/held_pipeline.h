#pragma once

#include <string>
#include <vector>

#include "ndmesh/plan/search/held.h"

namespace ndmesh::plan {

/// Whether what pipeline.layers lists, or a schedule that is a list, leaves pipelines of `pp` ranks with `chunks` chunks
/// each. One pipeline rank, to which neither means anything, only where it is held.
bool allows_stages(const Problem& problem, const Held& held, std::int64_t pp, std::int64_t chunks);

/// Of pipeline.layers and a schedule that is a list: what contradicts the model, the cluster, the batch, what is held, or
/// the target runtime. In the user's key names.
std::vector<std::string> pipeline_problems(const Problem& problem, const Held& held);

}  // namespace ndmesh::plan
