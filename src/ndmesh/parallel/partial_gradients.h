#pragma once

#include <vector>

#include "ndmesh/comm/world.h"
#include "ndmesh/parallel/model_layout.h"
#include "ndmesh/parallel/trainable.h"
#include "ndmesh/schedule/schedule.h"

namespace ndmesh::parallel {

/// Gradients of which several ranks outside of the loss axes, or several chunks of one rank, have a part each: summed, so
/// that each has all of it. Who sums what with whom follows from the layouts: the ranks of
/// ParameterLayout::gradient_reduction_axes that hold the same elements.
///   tp  what it replicates but feeds with other tokens, and what it shares or feeds with other heads
///   pp  a tied table, which the first and the last stage use differently
///
/// One rank's thread.
class PartialGradients {
 public:
  PartialGradients() = default;
  /// `trainables` of this rank keep their gradient tensors; those of one name lie alike wherever they are. `shape` says
  /// which rank runs which stage. `communicator` must outlive it.
  PartialGradients(const ModelLayout& layouts, const schedule::Shape& shape,
                   const std::vector<Trainable>& trainables, comm::Communicator& communicator);

  /// After finish_backward of every chunk. Collective over the ranks that share a parameter.
  void sum();

 private:
  /// Parts of a gradient that are one and the same part of the model: on this rank, and on the ranks of a Sum.
  struct Part {
    std::vector<at::Tensor> mine;  ///< by chunk of this rank
    bool on_host = false;
  };
  struct Sum {
    comm::Group* group = nullptr;  ///< null where all of it is on this rank
    std::vector<Part> parts;
  };
  void add(const std::vector<Trainable>& mine, const layout::ParameterLayout& layout,
           const schedule::Shape& shape, comm::Communicator& communicator);
  Sum& sum_over(comm::Group* group);

  std::vector<Sum> sums_;
};

}  // namespace ndmesh::parallel
