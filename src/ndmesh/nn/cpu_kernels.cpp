// Loops are vectorised by the compiler: built with -O3 -fopenmp-simd, -fno-math-errno and -fno-trapping-math
// (see CMakeLists.txt), not -ffast-math. Sums are reordered only where a pragma says so, and NaN passes
// through.
#include "ndmesh/nn/cpu_kernels.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace ndmesh::nn::cpu {
namespace {

// ---- number formats

double load(double x) {
  return x;
}
float load(float x) {
  return x;
}
float load(Bf16 x) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16);
}

void store(double& to, double x) {
  to = x;
}
void store(float& to, float x) {
  to = x;
}
void store(Bf16& to, float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const bool nan = (bits & 0x7fffffffU) > 0x7f800000U;  // rounding could turn a NaN into an infinity
  to.bits = static_cast<std::uint16_t>(nan ? 0x7fc0U : rounded);
}

// ---- exp and the logistic function

// exp(x) = 2^n exp(r), |r| <= ln(2) / 2, with the approximations of Cephes (Moshier): relative error 2e-16
// and 2e-7. Adding 1.5 * 2^(mantissa bits) rounds to an integer and leaves it in the low bits, from where it
// becomes an exponent. Beyond the range x is held at its ends; the comparisons are written so that NaN stays
// NaN.

double exponential(double x) {
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

float exponential(float x) {
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

template <typename W>
W logistic(W x) {
  return W{1} / (W{1} + exponential(-x));
}

// ---- the kernels for one instruction set; inlined into the functions that name it

template <typename T>
void loop(const RmsNormForward<T>& k, Rows rows) {
  using W = Wide<T>;
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    const T* x = k.x + row * k.size;
    if (k.y != nullptr) {
      const T* y = k.y + row * k.size;
      T* sum = k.sum + row * k.size;
#pragma omp simd
      for (std::int64_t i = 0; i < k.size; ++i) {
        store(sum[i], load(x[i]) + load(y[i]));
      }
      x = sum;  // as stored: what backward will read
    }
    W squares = 0;
#pragma omp simd reduction(+ : squares)
    for (std::int64_t i = 0; i < k.size; ++i) {
      squares += load(x[i]) * load(x[i]);
    }
    const W rstd = W{1} / std::sqrt(squares / static_cast<W>(k.size) + static_cast<W>(k.eps));
    k.rstd[row] = rstd;
    T* normed = k.normed + row * k.size;
#pragma omp simd
    for (std::int64_t i = 0; i < k.size; ++i) {
      store(normed[i], load(x[i]) * rstd * load(k.weight[i]));
    }
  }
}

/// The part of the norm's gradient along x, which the scaling takes out: (dnormed * weight) . x / (size *
/// rms^2).
template <typename T>
Wide<T> along_x(const RmsNormBackward<T>& k, const T* x, const T* dnormed, Wide<T> rstd) {
  const T* weight = k.weight;  // a local: the compiler does not see that the sum cannot change the member
  Wide<T> projection = 0;
#pragma omp simd reduction(+ : projection)
  for (std::int64_t i = 0; i < k.size; ++i) {
    projection += load(dnormed[i]) * load(weight[i]) * load(x[i]);
  }
  return projection * rstd * rstd / static_cast<Wide<T>>(k.size);
}

template <typename T>
void loop(const RmsNormBackward<T>& k, Rows rows) {
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    const T* x = k.x + row * k.size;
    const T* dnormed = k.dnormed + row * k.size;
    const Wide<T> rstd = k.rstd[row];
    const Wide<T> along = k.dx != nullptr ? along_x(k, x, dnormed, rstd) : 0;
    T* dx = k.dx != nullptr ? k.dx + row * k.size : nullptr;
    if (dx != nullptr && k.dsum != nullptr) {
      const T* dsum = k.dsum + row * k.size;
#pragma omp simd
      for (std::int64_t i = 0; i < k.size; ++i) {
        store(dx[i], rstd * (load(dnormed[i]) * load(k.weight[i]) - load(x[i]) * along) + load(dsum[i]));
      }
    } else if (dx != nullptr) {
#pragma omp simd
      for (std::int64_t i = 0; i < k.size; ++i) {
        store(dx[i], rstd * (load(dnormed[i]) * load(k.weight[i]) - load(x[i]) * along));
      }
    }
    if (k.dweight != nullptr) {
#pragma omp simd
      for (std::int64_t i = 0; i < k.size; ++i) {
        k.dweight[i] += load(dnormed[i]) * load(x[i]) * rstd;
      }
    }
  }
}

template <typename T>
void loop(const SwigluForward<T>& k, Rows elements) {
#pragma omp simd
  for (std::int64_t i = elements.begin; i < elements.end; ++i) {
    const auto gate = load(k.gate[i]);
    store(k.out[i], gate * logistic(gate) * load(k.up[i]));
  }
}

template <typename T>
void loop(const SwigluBackward<T>& k, Rows elements) {
#pragma omp simd
  for (std::int64_t i = elements.begin; i < elements.end; ++i) {
    const Wide<T> gate = load(k.gate[i]);
    const Wide<T> dout = load(k.dout[i]);
    const Wide<T> s = logistic(gate);
    store(k.dgate[i], dout * load(k.up[i]) * s * (1 + gate * (1 - s)));
    store(k.dup[i], dout * gate * s);
  }
}

template <typename T>
void loop(const Rotate<T>& k, Rows tokens) {
  for (std::int64_t token = tokens.begin; token < tokens.end; ++token) {
    const Wide<T>* cos = k.cos + (token % k.positions) * k.half;
    const Wide<T>* sin = k.sin + (token % k.positions) * k.half;
    for (std::int64_t head = 0; head < k.heads; ++head) {
      const T* x = k.x + (token * k.heads + head) * 2 * k.half;
      T* out = k.out + (token * k.heads + head) * 2 * k.half;
#pragma omp simd
      for (std::int64_t i = 0; i < k.half; ++i) {
        const Wide<T> first = load(x[i]);
        const Wide<T> second = load(x[k.half + i]);
        const Wide<T> turn = k.sign * sin[i];
        store(out[i], first * cos[i] - second * turn);
        store(out[k.half + i], second * cos[i] + first * turn);
      }
    }
  }
}

template <typename T>
void loop(const CrossEntropy<T>& k, Rows rows) {
  using W = Wide<T>;
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    T* logits = k.logits + row * k.vocab;
    const std::int64_t target = k.targets[row];
    if (target < 0) {
      k.losses[row] = 0;
      if (k.gradient) {
        std::fill(logits, logits + k.vocab, T{});
      }
      continue;
    }
    W largest = -std::numeric_limits<W>::infinity();
#pragma omp simd reduction(max : largest)
    for (std::int64_t i = 0; i < k.vocab; ++i) {
      const W x = load(logits[i]);
      largest = x > largest ? x : largest;
    }
    W total = 0;
#pragma omp simd reduction(+ : total)
    for (std::int64_t i = 0; i < k.vocab; ++i) {
      total += exponential(load(logits[i]) - largest);
    }
    k.losses[row] =
        std::log(static_cast<double>(total)) + static_cast<double>(largest - load(logits[target]));
    if (!k.gradient) {
      continue;
    }
    const W at_target = load(logits[target]);
    const W factor = static_cast<W>(k.scale) / total;
#pragma omp simd
    for (std::int64_t i = 0; i < k.vocab; ++i) {
      store(logits[i], exponential(load(logits[i]) - largest) * factor);
    }
    store(logits[target], exponential(at_target - largest) * factor - static_cast<W>(k.scale));
  }
}

template <typename T>
void loop(const EmbeddingGradient<T>& k, Rows range) {
  for (std::int64_t i = range.begin; i < range.end;) {
    const std::int64_t id = k.ids[k.order[i]];
    std::fill(k.sum, k.sum + k.size, Wide<T>{});
    for (; i < range.end && k.ids[k.order[i]] == id; ++i) {
      const T* dout = k.dout + k.order[i] * k.size;
#pragma omp simd
      for (std::int64_t j = 0; j < k.size; ++j) {
        k.sum[j] += load(dout[j]);
      }
    }
    T* dtable = k.dtable + id * k.size;
#pragma omp simd
    for (std::int64_t j = 0; j < k.size; ++j) {
      store(dtable[j], k.sum[j]);
    }
  }
}

// ---- choice of the instruction set

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
enum class Isa { baseline, avx2, avx512 };

Isa best_isa() {
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

}  // namespace

template <typename T>
void RmsNormForward<T>::run(Rows rows) const {
  run_best(*this, rows);
}
template <typename T>
void RmsNormBackward<T>::run(Rows rows) const {
  run_best(*this, rows);
}
template <typename T>
void SwigluForward<T>::run(Rows elements) const {
  run_best(*this, elements);
}
template <typename T>
void SwigluBackward<T>::run(Rows elements) const {
  run_best(*this, elements);
}
template <typename T>
void Rotate<T>::run(Rows tokens) const {
  run_best(*this, tokens);
}
template <typename T>
void CrossEntropy<T>::run(Rows rows) const {
  run_best(*this, rows);
}
template <typename T>
void EmbeddingGradient<T>::run(Rows range) const {
  run_best(*this, range);
}

#define NDMESH_INSTANTIATE(T)         \
  template struct RmsNormForward<T>;  \
  template struct RmsNormBackward<T>; \
  template struct SwigluForward<T>;   \
  template struct SwigluBackward<T>;  \
  template struct Rotate<T>;          \
  template struct CrossEntropy<T>;    \
  template struct EmbeddingGradient<T>
NDMESH_INSTANTIATE(double);
NDMESH_INSTANTIATE(float);
NDMESH_INSTANTIATE(Bf16);
#undef NDMESH_INSTANTIATE

}  // namespace ndmesh::nn::cpu
