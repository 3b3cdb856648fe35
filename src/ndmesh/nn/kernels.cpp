#include "ndmesh/nn/kernels.h"

namespace ndmesh::nn {

at::ScalarType wide_dtype(at::ScalarType dtype) {
  return dtype == at::kDouble ? at::kDouble : at::kFloat;
}

double weight_offset(NormKind kind) {
  return kind == NormKind::unit_offset_rms ? 1.0 : 0.0;
}

const Kernels& kernels_for(const at::Tensor& tensor) {
  return tensor.is_cpu() ? cpu_kernels() : composite_kernels();
}

}  // namespace ndmesh::nn
