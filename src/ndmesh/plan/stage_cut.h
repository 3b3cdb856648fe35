#pragma once

#include <vector>

#include "ndmesh/job/job.h"
#include "ndmesh/layout/layout.h"

namespace ndmesh::plan {

/// The layers of every pipeline stage of `job`, in the order of the model, as pipeline.layers says. By cost: of all cuts
/// into contiguous stages of at least one layer, one whose costliest stage costs least, in floating-point operations of a
/// token; the head adds to the last stage. `job` and `model` have passed job::check_trainable.
std::vector<layout::Range> stage_cut(const job::Job& job, const model::ModelSpec& model);

/// The cut by cost alone: `costs` of the layers, and what the last stage has beyond its layers. At most as many stages as
/// layers.
std::vector<layout::Range> cheapest_cut(const std::vector<double>& costs, double last, std::int64_t stages);

}  // namespace ndmesh::plan
