#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "ndmesh/comm/world.h"
#include "ndmesh/parallel/trainable.h"

namespace ndmesh::train {

/// Work on whole matrices whose rows are cut over ranks, each done once: matrices are shared out, largest first, over all
/// ranks that hold them, parts or copies. Keeps at most one whole matrix a rank.
class MatrixExchange {
 public:
  /// Keeps references to the gradients of `matrices`, equal lists on all ranks; `communicator` must outlive it. RunError
  /// for one that is cut otherwise than by rows, or over other axes than the first.
  MatrixExchange(std::vector<parallel::Trainable> matrices, comm::Communicator& communicator);

  using Work = std::function<at::Tensor(const at::Tensor& whole)>;
  /// Replaces what lies in the gradients' memory, by matrix, with what `work` makes of the whole; its result has the same
  /// shape. Sends each matrix to its owner and back (all_to_all), then to the copies of its rows (broadcast). Collective
  /// over the ranks that hold the matrices.
  void transform(const Work& work);

 private:
  /// What this rank has to do with the matrices of one round, of which each rank owns at most one.
  class Round;

  std::vector<parallel::Trainable> matrices_;  ///< largest first
  comm::Group* rows_ = nullptr;                ///< ranks with other rows; null where whole
  comm::Group* copies_ = nullptr;              ///< ranks with the same rows; null for one
};

}  // namespace ndmesh::train
