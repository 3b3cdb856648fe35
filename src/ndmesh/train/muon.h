#pragma once

#include <string>
#include <vector>

#include "ndmesh/comm/world.h"
#include "ndmesh/job/job.h"
#include "ndmesh/train/adamw.h"
#include "ndmesh/train/matrix_exchange.h"
#include "ndmesh/train/optimizer.h"
#include "ndmesh/train/optimizer_state.h"

namespace ndmesh::train {

struct MuonOptions {
  StateOptions states;
  at::ScalarType products = at::kFloat;  ///< dtype of the products of the orthogonalisation
  std::vector<std::string> by_adamw;     ///< names of matrices that are left to AdamW: tables and heads
};

/// Muon (Jordan et al., 2024): a matrix moves along the orthogonalised momentum of its gradient (newton_schulz.h), in
/// Nesterov's way or not; the running mean that PyTorch's Muon keeps: momentum * m + (1 - momentum) * g. Its learning
/// rate is lr * 0.2 * sqrt(larger dim), so that an update has the size of AdamW's (Liu et al., 2025; PyTorch's
/// adjust_lr_fn "match_rms_adamw"). Weight decay is decoupled. Everything but matrices goes by AdamW with the same lr.
///
/// The orthogonalisation needs whole matrices: they are shared out over all ranks that hold them or parts of them, each
/// is gathered by its owner and comes back as the rows of each rank (matrix_exchange.h). Momentum stays cut. Between
/// momentum and update the direction lies in the gradient's memory.
class Muon final : public Optimizer {
 public:
  /// Keeps references to the tensors of `trainables`, which must stay the same; `communicator` must outlive it. RunError
  /// for a matrix that is cut otherwise than by rows, or over other axes than the first.
  Muon(const job::OptimizerSection& settings, const std::vector<parallel::Trainable>& trainables,
       const MuonOptions& options, comm::Communicator& communicator);

 private:
  void update(double lr, double gradient_factor) override;
  void find_directions(double gradient_factor);
  void orthogonalise_directions();
  void move(double lr);

  job::OptimizerSection settings_;
  at::ScalarType products_;
  OptimizerState momentum_;  ///< of the matrices
  OptimizerState values_;    ///< of them too, without a moment
  MatrixExchange exchange_;
  AdamW rest_;
};

}  // namespace ndmesh::train
