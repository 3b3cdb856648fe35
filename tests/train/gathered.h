#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

#include "ndmesh/parallel/data_parallel.h"

namespace ndmesh::test {

/// Copies of all full gradients, by name. Collective.
inline std::map<std::string, at::Tensor> gradients_of(parallel::DataParallel& layout) {
  std::map<std::string, at::Tensor> gradients;
  for (const parallel::Trainable& trainable : layout.trainables()) {
    gradients[trainable.name] = layout.gather_gradient(trainable).clone();
  }
  return gradients;
}

}  // namespace ndmesh::test
