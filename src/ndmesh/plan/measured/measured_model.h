#pragma once

#include "ndmesh/model/model_spec.h"
#include "ndmesh/plan/measured/measured_row.h"

namespace ndmesh::plan {

/// The model of a row of the training table, from its dimensions. What the table leaves out follows from
/// rules: a missing feed-forward width is 4 * hidden, or 8/3 * hidden rounded up to 256 when gated; a
/// missing vocabulary is GPT-2's padded to 51200, or 32000 when gated; missing heads are as near 128 wide as
/// divides hidden and tp allows; models without gate are GPTs (LayerNorm, biases, learned positions). Multi-
/// head latent attention, windows and dense first layers are those of the public configurations, by the
/// model's name. What is missing or not modelled (hybrid layers) is added to the row's problems.
model::ModelSpec measured_model(const MeasuredRow& row);

}  // namespace ndmesh::plan
