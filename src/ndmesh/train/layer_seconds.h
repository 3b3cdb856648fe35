#pragma once

#include <vector>

#include "ndmesh/job/job.h"
#include "ndmesh/model/model_spec.h"

namespace ndmesh::train {

/// What one micro-batch takes on one rank: seconds of forward and backward.
struct LayerSeconds {
  std::vector<double> layers;  ///< by layer of the model
  double embedding = 0;
  double head = 0;  ///< final norm, head and loss

  /// Of the layers of each stage that pipeline.layers cost makes of them (plan::cheapest_cut).
  std::vector<std::int64_t> cut(std::int64_t stages) const;
};

/// Measured here and now, on a thread of its own with as many threads inside operators as a rank of `job` gets: with this
/// job's dtype, micro-batch and sequence, and with what tp leaves of a layer, but with no other rank beside it and nothing
/// sent. Layers of one kind are measured once; a layer that is recomputed whole has its forward twice. Holds one layer at a
/// time. `job` and `model` have passed job::check_trainable.
LayerSeconds measure_layers(const job::Job& job, const model::ModelSpec& model);

}  // namespace ndmesh::train
