#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

#include "ndmesh/parallel/data_parallel.h"
#include "ndmesh/parallel/parallel_model.h"

namespace ndmesh::test {

/// Copies of all full gradients, by name. Collective.
inline std::map<std::string, at::Tensor> gradients_of(parallel::DataParallel& layout) {
  std::map<std::string, at::Tensor> gradients;
  for (const parallel::Trainable& trainable : layout.trainables()) {
    gradients[trainable.name] = layout.gather_gradient(trainable).clone();
  }
  return gradients;
}

inline std::map<std::string, at::Tensor> gradients_of(parallel::ParallelModel& model) {
  std::map<std::string, at::Tensor> gradients;
  for (const std::string& name : model.trained_names()) {
    gradients[name] = model.gather_gradient(name).clone();
  }
  return gradients;
}

}  // namespace ndmesh::test
