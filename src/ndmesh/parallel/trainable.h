#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "ndmesh/layout/layout.h"

namespace ndmesh::parallel {

/// One parameter as this rank holds it: the part that this rank owns.
struct OwnedParameter {
  std::string name;             ///< as registered: Hugging Face's for the decoder
  layout::TensorLayout layout;  ///< where the parts of all ranks lie in the global tensor
  /// Of shape layout.local_shape(rank). Float32 or float64 where it is trained; in the dtype of compute where frozen.
  at::Tensor value;
  bool value_on_host = false;  ///< `value` lives in host memory (nn/host_memory.h)
};

/// One that is trained, as the optimizer sees it.
struct Trainable : OwnedParameter {
  at::Tensor gradient;   ///< shape and dtype of `value`; complete after DataParallel::finish_backward
  bool decayed = false;  ///< weight decay applies: matrices only
  bool gradient_on_host = false;  ///< `gradient` lives in host memory
  bool counted =
      true;  ///< in norms over all ranks; false: a copy beside one that is (a tied table on the last stage)
};

}  // namespace ndmesh::parallel
