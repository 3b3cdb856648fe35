#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ndmesh/base/integers.h"

namespace ndmesh::plan {

/// All of them, ascending.
std::vector<std::int64_t> divisors(std::int64_t number);

/// More bytes than any device has. What a hostile request asks for is capped here, so that a few sums stay in 64
/// bits.
inline constexpr std::int64_t most_bytes = std::int64_t{1} << 55;

/// a + b of numbers that are at most most_bytes, likewise.
constexpr std::int64_t capped_sum(std::int64_t a, std::int64_t b) {
  return std::min(a + b, most_bytes);
}

/// a * b of numbers that are not negative, at most most_bytes.
inline std::int64_t capped_product(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? most_bytes : std::min(product, most_bytes);
}

/// For formulas in floating point.
constexpr double real(std::int64_t value) {
  return static_cast<double>(value);
}

}  // namespace ndmesh::plan
