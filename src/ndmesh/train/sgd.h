#pragma once

#include <vector>

#include "ndmesh/job/job.h"
#include "ndmesh/train/optimizer.h"
#include "ndmesh/train/optimizer_state.h"

namespace ndmesh::train {

/// Stochastic gradient descent as PyTorch's: with `momentum` one moment, which Nesterov's way looks ahead along
/// (Sutskever et al., 2013); none without. Weight decay is added to the gradient, as there, of matrices only. Purely
/// local.
class Sgd final : public Optimizer {
 public:
  /// Keeps references to the tensors of `trainables`, which must stay the same.
  Sgd(const job::OptimizerSection& settings, const std::vector<parallel::Trainable>& trainables,
      const StateOptions& options = {});

 private:
  void update(double lr, double gradient_factor) override;

  job::OptimizerSection settings_;
  OptimizerState state_;
};

}  // namespace ndmesh::train
