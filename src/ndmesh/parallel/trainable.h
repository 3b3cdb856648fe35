#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "ndmesh/layout/layout.h"

namespace ndmesh::parallel {

/// One parameter as this rank's optimizer sees it: the part that this rank owns.
struct Trainable {
  std::string name;             ///< as registered: Hugging Face's for the decoder
  layout::TensorLayout layout;  ///< where the parts of all ranks lie in the global tensor
  at::Tensor value;     ///< what the optimizer updates: float32 or float64, of shape layout.local_shape(rank)
  at::Tensor gradient;  ///< same shape and dtype; complete after DataParallel::finish_backward
  bool decayed = false;  ///< weight decay applies: matrices only
};

}  // namespace ndmesh::parallel
