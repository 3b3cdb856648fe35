#include "ndmesh/nn/cpu_product.h"

#include <ATen/native/CPUBlas.h>

#include <array>

namespace ndmesh::nn::cpu {
namespace {

using at::native::cpublas::brgemm;

const at::BFloat16* numbers(const Bf16* x) {
  return reinterpret_cast<const at::BFloat16*>(x);
}

}  // namespace

template <>
void multiply<float>(const Extent& extent, Operand<const float> a, Operand<const float> b, Operand<float> c,
                     bool add) {
  brgemm(extent.m, extent.n, extent.k, a.stride, b.stride, c.stride, add, a.data, b.data, c.data);
}

template <>
void multiply<Bf16>(const Extent& extent, Operand<const Bf16> a, Operand<const Bf16> b, Operand<float> c,
                    bool add) {
  brgemm(extent.m, extent.n, extent.k, a.stride, b.stride, c.stride, add, numbers(a.data), numbers(b.data),
         c.data);
}

namespace {

bool has_bfloat16_instructions() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

/// (1 2) . (3 4; 5 6), which also tells whether b is read in units.
bool product_is_right() {
  constexpr Bf16 one = {0x3f80};
  constexpr Bf16 two = {0x4000};
  const std::array<Bf16, 2> a = {one, two};
  const std::array<Bf16, 4> b_units = {Bf16{0x4040}, Bf16{0x40a0}, Bf16{0x4080}, Bf16{0x40c0}};
  std::array<float, 2> c = {};
  try {
    multiply<Bf16>({1, 2, 2}, {a.data(), 2}, {b_units.data(), 2}, {c.data(), 2}, false);
  } catch (const c10::Error&) {  // built without it
    return false;
  }
  release_products();
  return c[0] == 13.0F && c[1] == 16.0F;
}

}  // namespace

bool multiplies_bfloat16() {
  static const bool answer = has_bfloat16_instructions() && product_is_right();
  return answer;
}

void release_products() {
  at::native::cpublas::brgemm_release();
}

}  // namespace ndmesh::nn::cpu
