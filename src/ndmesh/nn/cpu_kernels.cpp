// Loops are vectorised by the compiler: built with -O3 -fopenmp-simd, -fno-math-errno and -fno-trapping-math
// (see CMakeLists.txt), not -ffast-math. Sums are reordered only where a pragma says so, and NaN passes
// through.
#include "ndmesh/nn/cpu_kernels.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ndmesh/nn/cpu_vector.h"

namespace ndmesh::nn::cpu {

template <typename T>
static void loop(const RmsNormForward<T>& k, Rows rows) {
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
static Wide<T> along_x(const RmsNormBackward<T>& k, const T* x, const T* dnormed, Wide<T> rstd) {
  const T* weight = k.weight;  // a local: the compiler does not see that the sum cannot change the member
  Wide<T> projection = 0;
#pragma omp simd reduction(+ : projection)
  for (std::int64_t i = 0; i < k.size; ++i) {
    projection += load(dnormed[i]) * load(weight[i]) * load(x[i]);
  }
  return projection * rstd * rstd / static_cast<Wide<T>>(k.size);
}

template <typename T>
static void loop(const RmsNormBackward<T>& k, Rows rows) {
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
static void loop(const SwigluForward<T>& k, Rows elements) {
#pragma omp simd
  for (std::int64_t i = elements.begin; i < elements.end; ++i) {
    const auto gate = load(k.gate[i]);
    store(k.out[i], gate * logistic(gate) * load(k.up[i]));
  }
}

template <typename T>
static void loop(const SwigluBackward<T>& k, Rows elements) {
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
static void loop(const Rotate<T>& k, Rows tokens) {
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
static void loop(const CrossEntropy<T>& k, Rows rows) {
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
static void loop(const EmbeddingGradient<T>& k, Rows range) {
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
