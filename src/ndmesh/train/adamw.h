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

  void step(double lr, double gradient_factor) override;
  std::int64_t steps() const override { return steps_; }

 private:
  job::OptimizerSection settings_;
  OptimizerState state_;
  std::int64_t steps_ = 0;
};

}  // namespace ndmesh::train
