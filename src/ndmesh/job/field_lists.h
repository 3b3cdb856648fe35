#pragma once

#include <vector>

#include "ndmesh/job/field.h"

namespace ndmesh::job {

// Parts of the one list of keys (fields()), each in a source of its own.
std::vector<Field> strategy_fields();  ///< shard ... adapter: how the model is spread over the mesh
std::vector<Field> planning_fields();  ///< cluster and plan
std::vector<Field> serving_fields();   ///< plan, for plan.task serve

}  // namespace ndmesh::job
