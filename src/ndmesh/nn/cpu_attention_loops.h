#pragma once

#include <cstdint>

#include "ndmesh/nn/cpu_kernels.h"
#include "ndmesh/nn/cpu_product.h"

/// The vectorised loops between the tile products of cpu_attention.cpp; T is float or Bf16. A tile of scores has a
/// row for each key and a column for each query, so that what belongs to a query (its largest score, its sum) lies
/// along the vector. Matrices that a product reads in units of 4 bytes along its inner dim (one float or two
/// bfloat16) are called units: [inner / pack][outer][pack]. Columns are padded to a multiple of 16 with zeros.
namespace ndmesh::nn::cpu {

/// How raw scores (products of query and key) become what softmax reads.
struct ScoreForm {
  float scale;
  float softcap;  ///< 0: none
};

/// Which keys a column sees: oldest[c] to newest[c]; null where it sees all keys of the tile.
struct Sight {
  const std::int32_t* oldest;
  const std::int32_t* newest;
};

/// Online softmax (Milakov and Gimelshein, 2018) of one tile. Takes over the tile's `scores` [keys][stride], brings
/// `largest` and `total` [columns] up to date, tells in `rescale` what everything summed before is to be multiplied by, and
/// leaves in `weights` exp(score - largest), as units of keys (an odd last key is followed by zeros). For float,
/// weights may be scores.
template <typename T>
struct SoftmaxTile {
  float* scores;
  T* weights;
  float* largest;
  float* total;
  float* rescale;
  std::int64_t columns;
  std::int64_t stride;  ///< of scores and weights, in columns
  std::int64_t first_key;
  ScoreForm form;
  Sight sight;
  void run(Rows keys) const;
};

/// Weights and gradients of the scores, from what forward left. Takes over `scores` and `dweights` (gradients of
/// the weights), both [keys][stride]. `weights` and `dscores` are rows [keys][stride], `dscore_units` units of keys.
/// For float all three are in place: weights in scores, both others in dweights.
template <typename T>
struct SoftmaxBackwardTile {
  float* scores;
  float* dweights;
  const float* lse;
  const float* along;  ///< output . its gradient, of each column
  T* weights;
  T* dscores;
  T* dscore_units;
  std::int64_t columns;
  std::int64_t stride;
  std::int64_t first_key;
  ScoreForm form;
  Sight sight;
  void run(Rows keys) const;
};

/// rows[r][c] *= factors[c]; nothing where all factors are 1.
struct ScaleColumns {
  float* values;
  const float* factors;
  std::int64_t columns;
  std::int64_t stride;
  void run(Rows rows) const;
};

/// Rows of memory, `group` of them (the query heads of a key/value head) at each position.
template <typename T>
struct GroupedRows {
  T* first;
  std::int64_t group;
  std::int64_t position_stride;
  std::int64_t head_stride;
  T* at(std::int64_t row) const {
    return first + (row / group) * position_stride + (row % group) * head_stride;
  }
};

/// Copies rows to dense [rows][size], zeros behind the last up to `padded`.
template <typename T>
struct GatherRows {
  GroupedRows<const T> from;
  T* to;
  std::int64_t size;
  std::int64_t padded;
  void run(Rows rows) const;
};

/// Units of rows of a dense [rows][size]: [rows / pack][size][pack]. An odd last row is followed by zeros.
template <typename T>
struct ZipRows {
  GroupedRows<const T> from;
  T* to;
  std::int64_t size;
  void run(Rows rows) const;
};

/// to[u][r] = from[r][u] for `units` columns of 4 bytes; strides in those.
struct TransposeUnits {
  const void* from;
  std::int64_t from_stride;
  void* to;
  std::int64_t to_stride;
  std::int64_t units;
  void run(Rows rows) const;
};

/// sums[r] = x[r] . y[r], both dense [rows][size].
template <typename T>
struct DotRows {
  const T* x;
  const T* y;
  float* sums;
  std::int64_t size;
  void run(Rows rows) const;
};

/// Writes float rows as T: to row r goes from[r * row_stride + i * stride] * factors[r] (factors may be null).
template <typename T>
struct StoreRows {
  const float* from;
  const float* factors;
  GroupedRows<T> to;
  std::int64_t size;
  std::int64_t row_stride;
  std::int64_t stride;
  void run(Rows rows) const;
};

}  // namespace ndmesh::nn::cpu
