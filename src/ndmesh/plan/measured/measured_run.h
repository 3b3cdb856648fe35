#pragma once

#include <optional>
#include <string>

#include "ndmesh/plan/measured/measured_row.h"
#include "ndmesh/plan/measured/measurements.h"

namespace ndmesh::plan {

/// Mesh, micro-batch, schedule, ZeRO stage and recompute of a row of the training table. zero_stage 1 without
/// dp_shard shares the optimizer over all data-parallel ranks; a stage that is not stated counts as 1 (0
/// where distributed_optimizer is 0). What is missing, does not multiply to `gpus` or is not modelled is a
/// problem of the row.
Candidate measured_candidate(const MeasuredRow& row, const model::ModelSpec& model);

/// What the rules of meshes say against the measurement, so that no model meets what is no mesh. That layers or
/// parts are uneven is no objection.
void check_mesh(const MeasuredRow& row, const Measurement& measurement);

/// A schedule that is too long to simulate is a problem of the row. `stages`: pp times chunks.
void check_actions(const MeasuredRow& row, std::int64_t micro_batches, std::int64_t stages);

/// Seconds of one step: step_time_s, else by tokens_per_s_per_gpu, else by tflops_per_gpu and the count that
/// flop_kind names; nothing when there is none of them.
std::optional<double> measured_seconds(const MeasuredRow& row, const Problem& problem);

std::optional<MeasuredMemory> measured_memory(const MeasuredRow& row);

}  // namespace ndmesh::plan
