#pragma once

#include <algorithm>
#include <cstdint>

#include "ndmesh/base/dtype.h"

namespace ndmesh::plan {

/// Tensors are allocated in multiples of 64 bytes.
inline std::int64_t rounded(std::int64_t bytes) {
  return (bytes + 63) / 64 * 64;
}

/// More than any device has. What a hostile request asks for is capped here, so that a few sums stay in 64 bits.
inline constexpr std::int64_t most_bytes = std::int64_t{1} << 55;

/// a * b of numbers that are not negative, at most most_bytes.
inline std::int64_t capped_product(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? most_bytes : std::min(product, most_bytes);
}

/// The dtype of owned values, gradients, moments and statistics.
inline DType wide(DType dtype) {
  return dtype == DType::float64 ? DType::float64 : DType::float32;
}

}  // namespace ndmesh::plan
