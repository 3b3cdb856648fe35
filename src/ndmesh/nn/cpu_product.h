#pragma once

#include <cstdint>

#include "ndmesh/nn/cpu_kernels.h"

/// Products of small matrices on the calling thread. oneDNN's batch-reduce product, as libtorch exports it: compiled at
/// run time for each size and kept by the thread, so use few sizes.
namespace ndmesh::nn::cpu {

/// Numbers of T in 4 bytes.
template <typename T>
inline constexpr std::int64_t pack = 4 / static_cast<std::int64_t>(sizeof(T));

template <typename T>
struct Operand {
  T* data;
  std::int64_t stride;  ///< from one row to the next
  Operand from_row(std::int64_t row) const { return {data + row * stride, stride}; }
};

struct Extent {
  std::int64_t m;
  std::int64_t n;
  std::int64_t k;  ///< a multiple of pack<T>
};

/// c [m][n] = a [m][k] . b, or += with `add`. T is float or Bf16; b is units of [k][n]: [k / pack][n][pack], its stride
/// counted in columns. Sums in float32. Bf16 only where multiplies_bfloat16.
template <typename T>
void multiply(const Extent& extent, Operand<const T> a, Operand<const T> b, Operand<float> c, bool add);

/// Whether this processor and this libtorch multiply bfloat16 well: AVX-512 with its bfloat16 instructions, tried once.
bool multiplies_bfloat16();

/// After the last product of a stretch of work: gives the thread's tile registers back where there are some.
void release_products();

}  // namespace ndmesh::nn::cpu
