#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <vector>

#include "ndmesh/comm/world.h"
#include "ndmesh/parallel/trainable.h"

namespace ndmesh::parallel {

/// A module laid out over the batch ranks: what the training loop and the optimizer need of it, whichever strategy is
/// behind. One rank's view; used by that rank's thread. The order of a step is
///   begin_backward(last) ... backward ...   once for each micro-batch
///   finish_backward()                       gradients of `trainables` are complete
///   (optimizer changes the values)
///   parameters_changed()                    compute sees the new values; gradients are zero again
class DataParallel {
 public:
  virtual ~DataParallel() = default;

  virtual std::vector<Trainable>& trainables() = 0;

  /// Before the forward of a micro-batch. `last`: this is the step's last one, reduction may start during its backward.
  virtual void begin_micro_batch(bool last) = 0;
  virtual void finish_backward() = 0;
  virtual void parameters_changed() = 0;

  /// The full value or gradient of one parameter on every rank (collective; all ranks call it in the same order).
  virtual at::Tensor gather_value(const Trainable& trainable) = 0;
  virtual at::Tensor gather_gradient(const Trainable& trainable) = 0;
};

}  // namespace ndmesh::parallel
