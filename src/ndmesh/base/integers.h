#pragma once

#include <cstdint>

namespace ndmesh {

/// a / b of numbers that are not negative, rounded up.
constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

/// The least multiple of `multiple` that is not below `value`, which is not negative.
constexpr std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace ndmesh
