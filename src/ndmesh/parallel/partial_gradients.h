#pragma once

#include <vector>

#include "ndmesh/comm/world.h"
#include "ndmesh/layout/layout.h"
#include "ndmesh/parallel/trainable.h"
#include "ndmesh/schedule/schedule.h"

namespace ndmesh::parallel {

/// Gradients of which several ranks outside of the loss axes, or several chunks of one rank, have a part each: summed, so
/// that each has all of it. Which they are follows from the layouts: ParameterLayout::gradient_reduction_axes.
///   pp  a tied table, which the first and the last stage use differently
///
/// One rank's thread.
class PartialGradients {
 public:
  PartialGradients() = default;
  /// `trainables` of this rank keep their gradient tensors; those of one name lie alike wherever they are. `shape` says
  /// which rank runs which stage.
  PartialGradients(const std::vector<layout::ParameterLayout>& layouts, const schedule::Shape& shape,
                   const std::vector<Trainable>& trainables, comm::Communicator& communicator);

  /// After finish_backward of every chunk. Collective over the ranks that share a parameter.
  void sum();

 private:
  struct Shared {
    std::vector<Trainable> mine;     ///< of the chunks of this rank
    comm::Group* holders = nullptr;  ///< null where all of them are on this rank
  };
  std::vector<Shared> shared_;
};

}  // namespace ndmesh::parallel
