#pragma once

#include "ndmesh/plan/measured/measured_row.h"
#include "ndmesh/plan/problem.h"

namespace ndmesh::plan {

/// Sets in `problem` what a row of the training table says of memory beside the mesh: profile.memory of a
/// runtime of its day, by group and by what its notes state of kernels and loss; loss_chunk; the kind of
/// context parallelism. The runtime's profile of today, model and micro-batch are set already.
void set_memory_of_run(const MeasuredRow& row, std::int64_t micro, Problem& problem);

}  // namespace ndmesh::plan
