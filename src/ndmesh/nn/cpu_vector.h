#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "ndmesh/nn/cpu_kernels.h"

/// What the sources of vectorised loops share: number formats, elementary functions that the compiler can vectorise,
/// and the choice of the instruction set. Only for sources built as CMakeLists.txt says (-fopenmp-simd and friends).
namespace ndmesh::nn::cpu {

// ---- number formats

inline double load(double x) {
  return x;
}
inline float load(float x) {
  return x;
}
inline float load(Bf16 x) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16);
}

inline void store(double& to, double x) {
  to = x;
}
inline void store(float& to, float x) {
  to = x;
}
inline void store(Bf16& to, float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const bool nan = (bits & 0x7fffffffU) > 0x7f800000U;  // rounding could turn a NaN into an infinity
  to.bits = static_cast<std::uint16_t>(nan ? 0x7fc0U : rounded);
}

// ---- exp, tanh and the logistic function

// exp(x) = 2^n exp(r), |r| <= ln(2) / 2, with the approximations of Cephes (Moshier): relative error 2e-16
// and 2e-7. Adding 1.5 * 2^(mantissa bits) rounds to an integer and leaves it in the low bits, from where it
// becomes an exponent. Beyond the range x is held at its ends; the comparisons are written so that NaN stays
// NaN.

inline double exponential(double x) {
  x = -708.0 > x ? -708.0 : x;
  x = 708.0 < x ? 708.0 : x;
  const double shifted = x * 1.4426950408889634 + 6755399441055744.0;
  const double n = shifted - 6755399441055744.0;
  const double r = (x - n * 6.93145751953125e-1) - n * 1.42860682030941723212e-6;
  const double rr = r * r;
  const double p = r * ((1.26177193074810590878e-4 * rr + 3.02994407707441961300e-2) * rr + 1.0);
  const double q =
      ((3.00198505138664455042e-6 * rr + 2.52448340349684104192e-3) * rr + 2.27265548208155028766e-1) * rr +
      2.0;
  const std::uint64_t power = (std::bit_cast<std::uint64_t>(shifted) << 52) + 0x3ff0000000000000U;
  return (1.0 + 2.0 * p / (q - p)) * std::bit_cast<double>(power);
}

inline float exponential(float x) {
  x = -87.0F > x ? -87.0F : x;
  x = 88.0F < x ? 88.0F : x;
  const float shifted = x * 1.44269504F + 12582912.0F;
  const float n = shifted - 12582912.0F;
  const float r = (x - n * 0.693359375F) - n * -2.12194440e-4F;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * r * r + r + 1.0F;
  const std::uint32_t power = (std::bit_cast<std::uint32_t>(shifted) << 23) + 0x3f800000U;
  return p * std::bit_cast<float>(power);
}

/// tanh with the approximation of Cephes: relative error 2e-7.
inline float hyperbolic_tangent(float x) {
  const float z = x * x;
  float p = -5.70498872745e-3F;
  p = p * z + 2.06390887954e-2F;
  p = p * z - 5.37397155531e-2F;
  p = p * z + 1.33314422036e-1F;
  p = p * z - 3.33332819422e-1F;
  const float near_zero = p * z * x + x;
  const float elsewhere = 1.0F - 2.0F / (exponential(2.0F * x) + 1.0F);
  return z < 0.390625F ? near_zero : elsewhere;
}

template <typename W>
W logistic(W x) {
  return W{1} / (W{1} + exponential(-x));
}

// ---- choice of the instruction set

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
enum class Isa { baseline, avx2, avx512 };

inline Isa best_isa() {
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    return Isa::avx512;
  }
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? Isa::avx2 : Isa::baseline;
}

template <typename Kernel>
[[gnu::flatten, gnu::target("avx512f,avx512bw,avx512dq,avx512vl,fma,prefer-vector-width=512")]]  //
void run_avx512(const Kernel& kernel, Rows rows) {
  loop(kernel, rows);
}

template <typename Kernel>
[[gnu::flatten, gnu::target("avx2,fma")]] void run_avx2(const Kernel& kernel, Rows rows) {
  loop(kernel, rows);
}

/// loop(kernel, rows), a static function beside the kernel, compiled for the widest vectors that this processor has.
template <typename Kernel>
void run_best(const Kernel& kernel, Rows rows) {
  static const Isa isa = best_isa();
  if (isa == Isa::avx512) {
    run_avx512(kernel, rows);
  } else if (isa == Isa::avx2) {
    run_avx2(kernel, rows);
  } else {
    loop(kernel, rows);
  }
}
#else
template <typename Kernel>
void run_best(const Kernel& kernel, Rows rows) {
  loop(kernel, rows);
}
#endif

}  // namespace ndmesh::nn::cpu
