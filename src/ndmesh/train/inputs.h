#pragma once

#include <memory>
#include <optional>

#include "ndmesh/job/job.h"
#include "ndmesh/train/data.h"
#include "ndmesh/train/layer_seconds.h"
#include "ndmesh/train/safetensors.h"

namespace ndmesh::train {

/// Everything that a training run reads, opened and checked. Shared by all ranks, immutable.
struct Inputs {
  job::Job job;  ///< pipeline.measure has become the stages that it led to, in pipeline.layers
  model::ModelSpec model;
  std::unique_ptr<TokenFiles> tokens;
  std::unique_ptr<TokenFiles> evaluation;  ///< null unless data.eval_files is given
  std::unique_ptr<ModelWeights> weights;   ///< null for a preset, or a folder without weights: fresh values
  std::optional<LayerSeconds> measured;    ///< with pipeline.measure
};

/// Opens what `job` names and checks all that can be checked before a rank starts: the job
/// (job::check_trainable), token files against the vocabulary, weights against the model. RequestError with
/// everything that is wrong. Then measures layers, if the job asks for it.
Inputs open_inputs(job::Job job);

}  // namespace ndmesh::train
