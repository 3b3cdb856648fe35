#pragma once

#include <cstdint>

#include "ndmesh/base/dtype.h"

namespace ndmesh::plan {

/// Tensors are allocated in multiples of 64 bytes.
inline std::int64_t rounded(std::int64_t bytes) {
  return (bytes + 63) / 64 * 64;
}

/// The dtype of owned values, gradients, moments and statistics.
inline DType wide(DType dtype) {
  return dtype == DType::float64 ? DType::float64 : DType::float32;
}

}  // namespace ndmesh::plan
