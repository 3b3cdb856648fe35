#pragma once

#include <c10/util/Half.h>

#include <bit>
#include <cmath>
#include <cstdint>

/// Element formats and their conversions, written so that compilers vectorise loops over them. Every
/// conversion to a narrower format rounds once, to the nearest, ties to even.
namespace ndmesh::comm {

struct BFloat16 {
  std::uint16_t bits;
};
struct Half {
  std::uint16_t bits;
};

inline float widen(BFloat16 x) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16);
}
inline float widen(Half x) {
  return c10::detail::fp16_ieee_to_fp32_value(x.bits);
}
inline float widen(float x) {
  return x;
}
inline double widen(double x) {
  return x;
}
inline std::int64_t widen(std::int64_t x) {
  return x;
}

/// The float that keeps enough of `x` for rounding it once more, to 16 bits, to give what rounding `x` itself
/// would: round to odd (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008).
inline float round_to_odd(double x) {
  const float nearest = static_cast<float>(x);
  const double back = nearest;
  std::uint32_t bits = std::bit_cast<std::uint32_t>(nearest);
  bits -= std::abs(back) > std::abs(x) ? 1u : 0u;  // towards zero
  bits |= back != x ? 1u : 0u;
  return x == x ? std::bit_cast<float>(bits) : nearest;
}

template <class To>
struct Narrow;

template <>
struct Narrow<double> {
  static double from(float x) { return x; }
  static double from(double x) { return x; }
};
template <>
struct Narrow<float> {
  static float from(float x) { return x; }
  static float from(double x) { return static_cast<float>(x); }
};
template <>
struct Narrow<BFloat16> {
  static BFloat16 from(float x) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
    const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return {static_cast<std::uint16_t>(x == x ? rounded : 0x7fc0u)};
  }
  static BFloat16 from(double x) { return from(round_to_odd(x)); }
};
template <>
struct Narrow<Half> {
  static Half from(float x) { return {c10::detail::fp16_ieee_from_fp32_value(x)}; }
  static Half from(double x) { return from(round_to_odd(x)); }
};
template <>
struct Narrow<std::int64_t> {
  static std::int64_t from(std::int64_t x) { return x; }
};

}  // namespace ndmesh::comm
