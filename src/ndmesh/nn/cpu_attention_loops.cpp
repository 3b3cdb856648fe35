// Built as cpu_kernels.cpp is; see there.
#include "ndmesh/nn/cpu_attention_loops.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "ndmesh/nn/cpu_vector.h"

namespace ndmesh::nn::cpu {

/// exp(x), exactly 0 where float has no normal number for it: what no query sees must not count.
static inline float weight(float x) {
  const float e = exponential(x);
  return x < -87.0F ? 0.0F : e;
}

static inline std::uint32_t rounded(float x) {
  Bf16 result;
  store(result, x);
  return result.bits;
}

/// One number of each of two neighbouring rows of keys, as units.
static inline void store_pair(float* to, std::int64_t stride, std::int64_t column, float first,
                              float second) {
  to[column] = first;
  to[stride + column] = second;
}
static inline void store_pair(Bf16* to, std::int64_t /*stride*/, std::int64_t column, float first,
                              float second) {
  const std::uint32_t both = rounded(first) | (rounded(second) << 16);
  std::memcpy(to + 2 * column, &both, sizeof(both));
}

/// An odd last row of keys: the row that units pair with it is zero.
static inline void store_single(float* to, std::int64_t column, float value) {
  to[column] = value;
}
static inline void store_single(Bf16* to, std::int64_t column, float value) {
  store_pair(to, 0, column, value, 0.0F);
}

static inline void mask(float* scores, std::int64_t key, std::int64_t columns, const Sight& sight) {
  const auto at = static_cast<std::int32_t>(key);
  const std::int32_t* oldest = sight.oldest;
  const std::int32_t* newest = sight.newest;
#pragma omp simd
  for (std::int64_t c = 0; c < columns; ++c) {
    const bool seen = oldest[c] <= at && at <= newest[c];
    scores[c] = seen ? scores[c] : -std::numeric_limits<float>::infinity();
  }
}

static inline void form_scores(float* scores, std::int64_t columns, const ScoreForm& form) {
  if (form.softcap == 0.0F) {
#pragma omp simd
    for (std::int64_t c = 0; c < columns; ++c) {
      scores[c] *= form.scale;
    }
    return;
  }
  const float inner = form.scale / form.softcap;
#pragma omp simd
  for (std::int64_t c = 0; c < columns; ++c) {
    scores[c] = form.softcap * hyperbolic_tangent(scores[c] * inner);
  }
}

/// What forward does to a row of scores before the softmax, and its largest so far.
template <typename T>
static void raise_largest(const SoftmaxTile<T>& k, Rows keys) {
  float* largest = k.largest;
  for (std::int64_t key = keys.begin; key < keys.end; ++key) {
    float* scores = k.scores + key * k.stride;
    form_scores(scores, k.columns, k.form);
    if (k.sight.newest != nullptr) {
      mask(scores, k.first_key + key, k.columns, k.sight);
    }
#pragma omp simd
    for (std::int64_t c = 0; c < k.columns; ++c) {
      largest[c] = scores[c] > largest[c] ? scores[c] : largest[c];
    }
  }
}

template <typename T>
static void loop(const SoftmaxTile<T>& k, Rows keys) {
  float* largest = k.largest;
  float* total = k.total;
  float* rescale = k.rescale;
  std::copy(largest, largest + k.columns, rescale);
  raise_largest(k, keys);
#pragma omp simd
  for (std::int64_t c = 0; c < k.columns; ++c) {
    rescale[c] = weight(rescale[c] - largest[c]);
    total[c] *= rescale[c];
  }
  std::int64_t key = keys.begin;
  for (; key + 1 < keys.end; key += 2) {
    const float* first = k.scores + key * k.stride;
    const float* second = first + k.stride;
    T* weights = k.weights + key * k.stride;
#pragma omp simd
    for (std::int64_t c = 0; c < k.columns; ++c) {
      const float a = weight(first[c] - largest[c]);
      const float b = weight(second[c] - largest[c]);
      total[c] += a + b;
      store_pair(weights, k.stride, c, a, b);
    }
  }
  if (key < keys.end) {
    const float* last = k.scores + key * k.stride;
    T* weights = k.weights + key * k.stride;
#pragma omp simd
    for (std::int64_t c = 0; c < k.columns; ++c) {
      const float a = weight(last[c] - largest[c]);
      total[c] += a;
      store_single(weights, c, a);
    }
  }
}

/// What the gradient of a score is but for its weight; scores become what softmax read.
template <typename T>
static void form_slopes(const SoftmaxBackwardTile<T>& k, std::int64_t key) {
  float* scores = k.scores + key * k.stride;
  float* slopes = k.dweights + key * k.stride;
  const float* along = k.along;
  const float scale = k.form.scale;
  form_scores(scores, k.columns, k.form);
#pragma omp simd
  for (std::int64_t c = 0; c < k.columns; ++c) {
    slopes[c] = (slopes[c] - along[c]) * scale;
  }
  if (k.form.softcap != 0.0F) {
    const float inverse = 1.0F / k.form.softcap;
#pragma omp simd
    for (std::int64_t c = 0; c < k.columns; ++c) {
      const float capped = scores[c] * inverse;
      slopes[c] *= 1.0F - capped * capped;
    }
  }
  if (k.sight.newest != nullptr) {
    mask(scores, k.first_key + key, k.columns, k.sight);
  }
}

/// The units of dscores where rows are not units themselves.
static inline void store_units(Bf16* units, std::int64_t stride, std::int64_t column, float first,
                               float second) {
  store_pair(units, stride, column, first, second);
}
static inline void store_units(float* /*units*/, std::int64_t, std::int64_t, float, float) {}

/// Two rows of keys; an odd last one is read twice and counted once.
template <typename T>
static void store_gradients(const SoftmaxBackwardTile<T>& k, std::int64_t key, bool odd) {
  const std::int64_t here = key * k.stride;
  const std::int64_t there = odd ? here : here + k.stride;
  const float present = odd ? 0.0F : 1.0F;
  const float* lse = k.lse;
  const float* first = k.scores + here;
  const float* second = k.scores + there;
  const float* first_slope = k.dweights + here;
  const float* second_slope = k.dweights + there;
  T* first_weight = k.weights + here;
  T* second_weight = k.weights + there;
  T* first_gradient = k.dscores + here;
  T* second_gradient = k.dscores + there;
  T* units = k.dscore_units + here;
  const std::int64_t stride = k.stride;
#pragma omp simd
  for (std::int64_t c = 0; c < k.columns; ++c) {
    const float a = weight(first[c] - lse[c]);
    const float b = weight(second[c] - lse[c]);
    const float da = a * first_slope[c];
    const float db = b * second_slope[c];
    store(second_weight[c], b);
    store(second_gradient[c], db);
    store(first_weight[c], a);
    store(first_gradient[c], da);
    store_units(units, stride, c, da, db * present);
  }
}

template <typename T>
static void loop(const SoftmaxBackwardTile<T>& k, Rows keys) {
  for (std::int64_t key = keys.begin; key < keys.end; key += 2) {
    const bool odd = key + 1 == keys.end;
    form_slopes(k, key);
    if (!odd) {
      form_slopes(k, key + 1);
    }
    store_gradients(k, key, odd);
  }
}

static void loop(const ScaleColumns& k, Rows rows) {
  const float* factors = k.factors;
  std::int64_t changed = 0;
#pragma omp simd reduction(+ : changed)
  for (std::int64_t c = 0; c < k.columns; ++c) {
    changed += factors[c] == 1.0F ? 0 : 1;
  }
  for (std::int64_t row = rows.begin; changed > 0 && row < rows.end; ++row) {
    float* values = k.values + row * k.stride;
#pragma omp simd
    for (std::int64_t c = 0; c < k.columns; ++c) {
      values[c] *= factors[c];
    }
  }
}

template <typename T>
static void loop(const GatherRows<T>& k, Rows rows) {
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    std::memcpy(k.to + (row - rows.begin) * k.size, k.from.at(row),
                static_cast<std::size_t>(k.size) * sizeof(T));
  }
  std::fill(k.to + (rows.end - rows.begin) * k.size, k.to + k.padded * k.size, T{});
}

template <typename T>
static void loop(const ZipRows<T>& k, Rows rows) {
  for (std::int64_t row = rows.begin; row < rows.end; row += pack<T>) {
    const T* first = k.from.at(row);
    T* to = k.to + (row - rows.begin) * k.size;
    if constexpr (pack<T> == 1) {
      std::copy(first, first + k.size, to);
    } else {
      const bool odd = row + 1 == rows.end;
      const T* second = k.from.at(odd ? row : row + 1);
      const std::uint32_t keep = odd ? 0U : ~0U;
#pragma omp simd
      for (std::int64_t i = 0; i < k.size; ++i) {
        const std::uint32_t both =
            first[i].bits | ((static_cast<std::uint32_t>(second[i].bits) << 16) & keep);
        std::memcpy(to + 2 * i, &both, sizeof(both));
      }
    }
  }
}

static void loop(const TransposeUnits& k, Rows rows) {
  constexpr std::int64_t block = 16;
  const auto* from = static_cast<const std::uint32_t*>(k.from);
  auto* to = static_cast<std::uint32_t*>(k.to);
  std::int64_t row = rows.begin;
  for (; row + block <= rows.end; row += block) {
    for (std::int64_t unit = 0; unit < k.units; ++unit) {
#pragma omp simd
      for (std::int64_t i = 0; i < block; ++i) {
        to[unit * k.to_stride + row + i] = from[(row + i) * k.from_stride + unit];
      }
    }
  }
  for (; row < rows.end; ++row) {
    for (std::int64_t unit = 0; unit < k.units; ++unit) {
      to[unit * k.to_stride + row] = from[row * k.from_stride + unit];
    }
  }
}

template <typename T>
static void loop(const DotRows<T>& k, Rows rows) {
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    const T* x = k.x + row * k.size;
    const T* y = k.y + row * k.size;
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t i = 0; i < k.size; ++i) {
      sum += load(x[i]) * load(y[i]);
    }
    k.sums[row] = sum;
  }
}

template <typename T>
static void loop(const StoreRows<T>& k, Rows rows) {
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    const float* from = k.from + (row - rows.begin) * k.row_stride;
    const float factor = k.factors != nullptr ? k.factors[row - rows.begin] : 1.0F;
    T* to = k.to.at(row);
#pragma omp simd
    for (std::int64_t i = 0; i < k.size; ++i) {
      store(to[i], from[i * k.stride] * factor);
    }
  }
}

template <typename T>
void SoftmaxTile<T>::run(Rows keys) const {
  run_best(*this, keys);
}
template <typename T>
void SoftmaxBackwardTile<T>::run(Rows keys) const {
  run_best(*this, keys);
}
template <typename T>
void GatherRows<T>::run(Rows rows) const {
  run_best(*this, rows);
}
template <typename T>
void ZipRows<T>::run(Rows rows) const {
  run_best(*this, rows);
}
template <typename T>
void DotRows<T>::run(Rows rows) const {
  run_best(*this, rows);
}
template <typename T>
void StoreRows<T>::run(Rows rows) const {
  run_best(*this, rows);
}
void ScaleColumns::run(Rows rows) const {
  run_best(*this, rows);
}
void TransposeUnits::run(Rows rows) const {
  run_best(*this, rows);
}

#define NDMESH_INSTANTIATE(T)             \
  template struct SoftmaxTile<T>;         \
  template struct SoftmaxBackwardTile<T>; \
  template struct GatherRows<T>;          \
  template struct ZipRows<T>;             \
  template struct DotRows<T>;             \
  template struct StoreRows<T>
NDMESH_INSTANTIATE(float);
NDMESH_INSTANTIATE(Bf16);
#undef NDMESH_INSTANTIATE

}  // namespace ndmesh::nn::cpu
