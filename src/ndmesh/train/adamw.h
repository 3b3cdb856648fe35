#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "ndmesh/job/job.h"
#include "ndmesh/parallel/trainable.h"

namespace ndmesh::train {

/// AdamW (Loshchilov and Hutter, 2019) over what this rank owns; moments lie as their parameters do, in the
/// same dtype (MemoryCategory::optimizer). Weight decay applies to matrices only. Purely local.
class AdamW {
 public:
  /// Keeps references to the tensors of `trainables`, which must stay the same. Moments start at zero, at
  /// step 0.
  AdamW(const job::OptimizerSection& settings, const std::vector<parallel::Trainable>& trainables);

  /// One update with learning rate `lr`. Gradients are multiplied by `gradient_factor` (clipping) first, in
  /// place.
  void step(double lr, double gradient_factor);

  /// Updates done so far.
  std::int64_t steps() const { return steps_; }

 private:
  /// Parameters with the same weight decay: one fused call.
  struct ParameterList {
    std::vector<at::Tensor> values, gradients, first_moments, second_moments;
    double weight_decay = 0;
  };

  job::OptimizerSection settings_;
  ParameterList decayed_, plain_;
  std::int64_t steps_ = 0;
};

}  // namespace ndmesh::train
