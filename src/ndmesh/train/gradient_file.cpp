#include "ndmesh/train/gradient_file.h"

#include "ndmesh/train/safetensors.h"
#include "ndmesh/train/scalar_type.h"

namespace ndmesh::train {

Trainer::GradientObserver gradient_writer(const std::string& file, std::int64_t rank) {
  if (file.empty()) {
    return {};
  }
  return [file, rank](std::int64_t step, parallel::ParallelModel& model) {
    if (step != 1) {
      return;
    }
    std::vector<TensorToWrite> tensors;
    std::map<std::string, at::Tensor> gradients;
    for (const std::string& name : model.trained_names()) {
      gradients[name] = model.gather_gradient(name);
      tensors.push_back({name, gradients[name].sizes().vec()});
    }
    if (rank == 0) {
      const DType dtype = *dtype_of(gradients.begin()->second.scalar_type());
      write_safetensors(file, tensors, dtype, {},
                        [&](const std::string& name) { return gradients.at(name); });
    }
  };
}

}  // namespace ndmesh::train
