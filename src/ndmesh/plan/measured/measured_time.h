#pragma once

#include "ndmesh/plan/measured/measured_row.h"
#include "ndmesh/plan/profile/time_profile.h"

namespace ndmesh::plan {

/// How the run of a row spent time, where it differs from its runtime as of today (`today`): what its group
/// is known to have run (year and framework), then what its notes say (kernels, compilation, overlaps).
TimeProfile measured_time(const MeasuredRow& row, const TimeProfile& today);

/// The vTrain tables: Megatron-DeepSpeed of 2022, attention written to memory, nothing overlapped; made of
/// layers that were traced one by one, each for one micro-batch (no sums of gradients, no clipping).
TimeProfile vtrain_time();

}  // namespace ndmesh::plan
