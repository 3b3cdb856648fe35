#pragma once

#include "ndmesh/job/job.h"

namespace ndmesh::train {

/// Learning rate of optimizer step `step` (counted from 1) of `steps`: rises linearly to `peak` over
/// lr_schedule.warmup steps, then stays (constant), or falls linearly or along half a cosine to final_ratio *
/// peak at the last step. A function of the step alone, whatever the mesh and the accumulation.
double learning_rate(const job::LrScheduleSection& schedule, double peak, std::int64_t step,
                     std::int64_t steps);

}  // namespace ndmesh::train
