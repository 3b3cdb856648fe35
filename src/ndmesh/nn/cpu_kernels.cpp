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
static Wide<T> mean_of(const T* x, std::int64_t size) {
  Wide<T> total = 0;
#pragma omp simd reduction(+ : total)
  for (std::int64_t i = 0; i < size; ++i) {
    total += load(x[i]);
  }
  return total / static_cast<Wide<T>>(size);
}

/// Writes x + y to its row of `sum`: as stored there, backward will read it.
template <typename T>
static const T* summed_row(const NormForward<T>& k, std::int64_t row) {
  const T* x = k.x + row * k.size;
  if (k.y == nullptr) {
    return x;
  }
  const T* y = k.y + row * k.size;
  T* sum = k.sum + row * k.size;
#pragma omp simd
  for (std::int64_t i = 0; i < k.size; ++i) {
    store(sum[i], load(x[i]) + load(y[i]));
  }
  return sum;
}

template <typename T>
static void loop(const NormForward<T>& k, Rows rows) {
  using W = Wide<T>;
  const W offset = k.offset;
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    const T* x = summed_row(k, row);
    const W mean = k.mean != nullptr ? mean_of(x, k.size) : 0;
    W squares = 0;
#pragma omp simd reduction(+ : squares)
    for (std::int64_t i = 0; i < k.size; ++i) {
      squares += (load(x[i]) - mean) * (load(x[i]) - mean);
    }
    const W rstd = W{1} / std::sqrt(squares / static_cast<W>(k.size) + static_cast<W>(k.eps));
    k.rstd[row] = rstd;
    if (k.mean != nullptr) {
      k.mean[row] = mean;
    }
    T* normed = k.normed + row * k.size;
    if (k.bias != nullptr) {  // NOLINT(bugprone-branch-clone): the check does not look into OpenMP loops
#pragma omp simd
      for (std::int64_t i = 0; i < k.size; ++i) {
        store(normed[i], (load(x[i]) - mean) * rstd * (load(k.weight[i]) + offset) + load(k.bias[i]));
      }
    } else {
#pragma omp simd
      for (std::int64_t i = 0; i < k.size; ++i) {
        store(normed[i], (load(x[i]) - mean) * rstd * (load(k.weight[i]) + offset));
      }
    }
  }
}

/// What the norm takes out of the gradient g = dnormed * (weight + offset): its part along x - mean, and, where
/// the mean is taken out, its own mean.
template <typename W>
struct TakenOut {
  W along;
  W level;
};

template <typename T>
static TakenOut<Wide<T>> taken_out(const NormBackward<T>& k, const T* x, const T* dnormed, Wide<T> mean,
                                   Wide<T> rstd) {
  using W = Wide<T>;
  const T* weight = k.weight;  // locals: the compiler does not see that the sum cannot change the members
  const W offset = k.offset;
  W projection = 0;
#pragma omp simd reduction(+ : projection)
  for (std::int64_t i = 0; i < k.size; ++i) {
    projection += load(dnormed[i]) * (load(weight[i]) + offset) * (load(x[i]) - mean);
  }
  W total = 0;
  if (k.mean != nullptr) {
#pragma omp simd reduction(+ : total)
    for (std::int64_t i = 0; i < k.size; ++i) {
      total += load(dnormed[i]) * (load(weight[i]) + offset);
    }
  }
  const W size = static_cast<W>(k.size);
  return {projection * rstd * rstd / size, total / size};
}

template <typename T>
static void write_dx(const NormBackward<T>& k, std::int64_t row, Wide<T> mean, Wide<T> rstd) {
  const T* x = k.x + row * k.size;
  const T* dnormed = k.dnormed + row * k.size;
  const TakenOut<Wide<T>> out = taken_out(k, x, dnormed, mean, rstd);
  const Wide<T> along = out.along;
  const Wide<T> level = out.level;
  const T* weight = k.weight;
  const Wide<T> offset = k.offset;
  T* dx = k.dx + row * k.size;
  if (k.dsum != nullptr) {
    const T* dsum = k.dsum + row * k.size;
#pragma omp simd
    for (std::int64_t i = 0; i < k.size; ++i) {
      const Wide<T> g = load(dnormed[i]) * (load(weight[i]) + offset);
      store(dx[i], rstd * (g - (load(x[i]) - mean) * along - level) + load(dsum[i]));
    }
  } else {
#pragma omp simd
    for (std::int64_t i = 0; i < k.size; ++i) {
      const Wide<T> g = load(dnormed[i]) * (load(weight[i]) + offset);
      store(dx[i], rstd * (g - (load(x[i]) - mean) * along - level));
    }
  }
}

template <typename T>
static void loop(const NormBackward<T>& k, Rows rows) {
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    const Wide<T> mean = k.mean != nullptr ? k.mean[row] : 0;
    const Wide<T> rstd = k.rstd[row];
    if (k.dx != nullptr) {
      write_dx(k, row, mean, rstd);
    }
    const T* x = k.x + row * k.size;
    const T* dnormed = k.dnormed + row * k.size;
    if (k.dweight != nullptr) {
#pragma omp simd
      for (std::int64_t i = 0; i < k.size; ++i) {
        k.dweight[i] += load(dnormed[i]) * (load(x[i]) - mean) * rstd;
      }
    }
    if (k.dbias != nullptr) {
#pragma omp simd
      for (std::int64_t i = 0; i < k.size; ++i) {
        k.dbias[i] += load(dnormed[i]);
      }
    }
  }
}

/// Activations of the form x * logistic(h(x)).
struct Silu {
  template <typename W>
  static W inner(W x) {
    return x;
  }
  template <typename W>
  static W inner_slope(W) {
    return W{1};
  }
};

/// 0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))) (Hendrycks and Gimpel, arXiv 1606.08415), as
/// (1 + tanh(u)) / 2 = logistic(2u).
struct GeluTanh {
  template <typename W>
  static W inner(W x) {
    return x * (W(first) + W(third) * x * x);
  }
  template <typename W>
  static W inner_slope(W x) {
    return W(first) + 3 * W(third) * x * x;
  }
  static constexpr double first = 1.5957691216057307117597842397375;  // 2 * sqrt(2 / pi)
  static constexpr double third = first * 0.044715;
};

template <typename Act, typename T>
static void gated_rows(const GatedForward<T>& k, Rows rows) {
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    const T* gate = k.gate + row * k.stride;
    const T* up = k.up != nullptr ? k.up + row * k.stride : nullptr;
    T* out = k.out + row * k.width;
    if (up != nullptr) {  // NOLINT(bugprone-branch-clone): the check does not look into OpenMP loops
#pragma omp simd
      for (std::int64_t i = 0; i < k.width; ++i) {
        const Wide<T> x = load(gate[i]);
        store(out[i], x * logistic(Act::inner(x)) * load(up[i]));
      }
    } else {
#pragma omp simd
      for (std::int64_t i = 0; i < k.width; ++i) {
        const Wide<T> x = load(gate[i]);
        store(out[i], x * logistic(Act::inner(x)));
      }
    }
  }
}

template <typename Act, typename T>
static void gated_rows(const GatedBackward<T>& k, Rows rows) {
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    const T* gate = k.gate + row * k.stride;
    const T* up = k.up != nullptr ? k.up + row * k.stride : nullptr;
    const T* douts = k.dout + row * k.width;
    T* dgate = k.dgate + row * k.stride;
    T* dup = k.dup != nullptr ? k.dup + row * k.stride : nullptr;
    if (up != nullptr) {  // NOLINT(bugprone-branch-clone): the check does not look into OpenMP loops
#pragma omp simd
      for (std::int64_t i = 0; i < k.width; ++i) {
        const Wide<T> x = load(gate[i]);
        const Wide<T> dout = load(douts[i]);
        const Wide<T> s = logistic(Act::inner(x));
        store(dgate[i], dout * load(up[i]) * s * (1 + x * (1 - s) * Act::inner_slope(x)));
        store(dup[i], dout * x * s);
      }
    } else {
#pragma omp simd
      for (std::int64_t i = 0; i < k.width; ++i) {
        const Wide<T> x = load(gate[i]);
        const Wide<T> s = logistic(Act::inner(x));
        store(dgate[i], load(douts[i]) * s * (1 + x * (1 - s) * Act::inner_slope(x)));
      }
    }
  }
}

template <typename T>
static void loop(const GatedForward<T>& k, Rows rows) {
  k.gelu ? gated_rows<GeluTanh>(k, rows) : gated_rows<Silu>(k, rows);
}
template <typename T>
static void loop(const GatedBackward<T>& k, Rows rows) {
  k.gelu ? gated_rows<GeluTanh>(k, rows) : gated_rows<Silu>(k, rows);
}

template <typename T>
static void loop(const Rotate<T>& k, Rows tokens) {
  for (std::int64_t token = tokens.begin; token < tokens.end; ++token) {
    const Wide<T>* cos = k.cos + (token % k.positions) * k.half;
    const Wide<T>* sin = k.sin + (token % k.positions) * k.half;
    for (std::int64_t head = 0; head < k.heads; ++head) {
      const T* x = k.x + (token * k.heads + head) * k.size;
      T* out = k.out + (token * k.heads + head) * k.size;
#pragma omp simd
      for (std::int64_t i = 0; i < k.half; ++i) {
        const Wide<T> first = load(x[i]);
        const Wide<T> second = load(x[k.half + i]);
        const Wide<T> turn = k.sign * sin[i];
        store(out[i], first * cos[i] - second * turn);
        store(out[k.half + i], second * cos[i] + first * turn);
      }
      std::copy(x + 2 * k.half, x + k.size, out + 2 * k.half);
    }
  }
}

template <typename T>
static RowStatistics<T> statistics_of(const T* logits, std::int64_t vocab, std::int64_t target) {
  using W = Wide<T>;
  W largest = -std::numeric_limits<W>::infinity();
#pragma omp simd reduction(max : largest)
  for (std::int64_t i = 0; i < vocab; ++i) {
    const W x = load(logits[i]);
    largest = x > largest ? x : largest;
  }
  W total = 0;
#pragma omp simd reduction(+ : total)
  for (std::int64_t i = 0; i < vocab; ++i) {
    total += exponential(load(logits[i]) - largest);
  }
  return {largest, total, target >= 0 && target < vocab ? load(logits[target]) : W{0}};
}

template <typename T>
static void loop(const LogitStatistics<T>& k, Rows rows) {
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    const RowStatistics<T> found = statistics_of(k.logits + row * k.vocab, k.vocab, k.targets[row]);
    k.statistics[row] = found.largest;
    k.statistics[k.all_rows + row] = found.total;
    k.statistics[2 * k.all_rows + row] = found.at_target;
  }
}

/// (softmax - onehot) * scale, in place.
template <typename T>
static void write_gradient(const CrossEntropy<T>& k, T* logits, std::int64_t target,
                           const RowStatistics<T>& row) {
  using W = Wide<T>;
  const W factor = static_cast<W>(k.scale) / row.total;
#pragma omp simd
  for (std::int64_t i = 0; i < k.vocab; ++i) {
    store(logits[i], exponential(load(logits[i]) - row.largest) * factor);
  }
  if (target < k.vocab) {
    store(logits[target], exponential(row.at_target - row.largest) * factor - static_cast<W>(k.scale));
  }
}

template <typename T>
static void loop(const CrossEntropy<T>& k, Rows rows) {
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
    const RowStatistics<T> found = k.statistics == nullptr
                                       ? statistics_of(logits, k.vocab, target)
                                       : RowStatistics<T>{k.statistics[row], k.statistics[k.all_rows + row],
                                                          k.statistics[2 * k.all_rows + row]};
    k.losses[row] =
        std::log(static_cast<double>(found.total)) + static_cast<double>(found.largest - found.at_target);
    if (k.gradient) {
      write_gradient(k, logits, target, found);
    }
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
void NormForward<T>::run(Rows rows) const {
  run_best(*this, rows);
}
template <typename T>
void NormBackward<T>::run(Rows rows) const {
  run_best(*this, rows);
}
template <typename T>
void GatedForward<T>::run(Rows rows) const {
  run_best(*this, rows);
}
template <typename T>
void GatedBackward<T>::run(Rows rows) const {
  run_best(*this, rows);
}
template <typename T>
void Rotate<T>::run(Rows tokens) const {
  run_best(*this, tokens);
}
template <typename T>
void LogitStatistics<T>::run(Rows rows) const {
  run_best(*this, rows);
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
  template struct NormForward<T>;     \
  template struct NormBackward<T>;    \
  template struct GatedForward<T>;    \
  template struct GatedBackward<T>;   \
  template struct Rotate<T>;          \
  template struct LogitStatistics<T>; \
  template struct CrossEntropy<T>;    \
  template struct EmbeddingGradient<T>
NDMESH_INSTANTIATE(double);
NDMESH_INSTANTIATE(float);
NDMESH_INSTANTIATE(Bf16);
#undef NDMESH_INSTANTIATE

}  // namespace ndmesh::nn::cpu
