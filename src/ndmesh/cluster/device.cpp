#include "ndmesh/cluster/device.h"

namespace ndmesh::cluster {

double Device::peak_flops(DType dtype) const {
  const bool half = dtype == DType::bfloat16 || dtype == DType::float16;
  return half ? bf16_flops : dtype == DType::float32 ? fp32_flops : 0;
}

}  // namespace ndmesh::cluster
