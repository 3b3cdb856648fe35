#include "ndmesh/train/gradient_file.h"

#include "ndmesh/train/safetensors.h"
#include "ndmesh/train/scalar_type.h"

namespace ndmesh::train {

Trainer::GradientObserver gradient_writer(const std::string& file, std::int64_t rank) {
  if (file.empty()) {
    return {};
  }
  return [file, rank](std::int64_t step, parallel::DataParallel& layout) {
    if (step != 1) {
      return;
    }
    std::vector<TensorToWrite> tensors;
    std::map<std::string, at::Tensor> gradients;
    for (const parallel::Trainable& trainable : layout.trainables()) {
      gradients[trainable.name] = layout.gather_gradient(trainable);
      tensors.push_back({trainable.name, trainable.layout.shape()});
    }
    if (rank == 0) {
      const DType dtype = *dtype_of(gradients.begin()->second.scalar_type());
      write_safetensors(file, tensors, dtype, {},
                        [&](const std::string& name) { return gradients.at(name); });
    }
  };
}

}  // namespace ndmesh::train
