#pragma once

#include <vector>

#include "ndmesh/job/job.h"
#include "ndmesh/train/optimizer.h"
#include "ndmesh/train/optimizer_state.h"

namespace ndmesh::train {

/// AdamW (Loshchilov and Hutter, 2019), as PyTorch's; two moments. Weight decay, decoupled, applies to matrices only.
/// Reads `betas`, `eps` and `weight_decay`. Purely local.
class AdamW final : public Optimizer {
 public:
  /// Keeps references to the tensors of `trainables`, which must stay the same.
  AdamW(const job::OptimizerSection& settings, const std::vector<parallel::Trainable>& trainables,
        const StateOptions& options = {});

 private:
  void update(double lr, double gradient_factor) override;

  job::OptimizerSection settings_;
  OptimizerState state_;
};

}  // namespace ndmesh::train
