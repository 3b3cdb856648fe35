#pragma once

#include <cstdint>

/// The inner loops of the decoder's operators on a CPU: plain pointers and ranges of rows, so that callers
/// choose how rows are divided over threads. Each is built for baseline x86-64, AVX2 and AVX-512 and picks
/// the best at run time. T is double, float or Bf16; arithmetic is in Wide<T>. NaN and infinity come out
/// where they would in plain arithmetic. No two pointers may overlap unless a comment says so; the operators
/// in fused.cpp see to it.
namespace ndmesh::nn::cpu {

/// The bits of a bfloat16; converted by rounding to nearest even.
struct Bf16 {
  std::uint16_t bits;
};

template <typename T>
struct WideOf {
  using type = float;
};
template <>
struct WideOf<double> {
  using type = double;
};
template <typename T>
using Wide = typename WideOf<T>::type;

struct Rows {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// normed = (sum - mean) * rstd * (weight + offset) + bias, with sum = x + y and rstd = 1 / sqrt of the mean of
/// (sum - mean)^2. With `mean` null the mean is taken as 0 (RMSNorm), otherwise it is written there, as rstd is,
/// one a row. With y null sum is x, and nothing is written to `sum`. bias may be null.
template <typename T>
struct NormForward {
  const T* x;
  const T* y;
  const T* weight;
  const T* bias;
  T* sum;
  T* normed;
  Wide<T>* mean;
  Wide<T>* rstd;
  std::int64_t size;
  double eps;
  Wide<T> offset;
  void run(Rows rows) const;
};

/// Gradients of the norm; `mean` as in forward. dx (may be null) takes dsum too where that is not null. dweight
/// and dbias (may be null) are one row of `size` each that is added to.
template <typename T>
struct NormBackward {
  const T* x;
  const T* weight;
  const Wide<T>* mean;
  const Wide<T>* rstd;
  const T* dnormed;
  const T* dsum;
  T* dx;
  Wide<T>* dweight;
  Wide<T>* dbias;
  std::int64_t size;
  Wide<T> offset;
  void run(Rows rows) const;
};

/// out = silu(gate) * up, or with `gelu` gelu(gate) * up in its tanh form; up may be null, which is 1. A row has
/// `width` elements; rows of gate and of up begin `stride` apart, those of out `width`.
template <typename T>
struct GatedForward {
  const T* gate;
  const T* up;
  T* out;
  std::int64_t width;
  std::int64_t stride;
  bool gelu;
  void run(Rows rows) const;
};

/// dgate and dup (null where up is) lie as gate and up do.
template <typename T>
struct GatedBackward {
  const T* gate;
  const T* up;
  const T* dout;
  T* dgate;
  T* dup;
  std::int64_t width;
  std::int64_t stride;
  bool gelu;
  void run(Rows rows) const;
};

/// Rotates the halves of the first 2 * half numbers of each head; the others stay. A row is one token with `heads`
/// heads of `size` numbers; token t reads row t % positions of the tables. sign -1 turns back (the gradient).
template <typename T>
struct Rotate {
  const T* x;
  const Wide<T>* cos;
  const Wide<T>* sin;
  T* out;
  std::int64_t heads;
  std::int64_t size;
  std::int64_t half;
  std::int64_t positions;
  Wide<T> sign;
  void run(Rows tokens) const;
};

/// What a row's loss needs of its logits; the target's is 0 where it is none of them.
template <typename T>
struct RowStatistics {
  Wide<T> largest;
  Wide<T> total;  ///< sum of exp(logit - largest)
  Wide<T> at_target;
};

/// Statistics of each row, in three runs of `rows` numbers. Targets below 0 or from `vocab` on are none of the
/// row's.
template <typename T>
struct LogitStatistics {
  const T* logits;
  const std::int64_t* targets;
  Wide<T>* statistics;
  std::int64_t all_rows;
  std::int64_t vocab;
  void run(Rows rows) const;
};

/// losses[row] = log-sum-exp(row) - row[target], 0 where target is negative. With `gradient`, logits are
/// replaced by their gradient times `scale`: (softmax - onehot) * scale, or 0 where target is negative. With
/// `statistics` (as LogitStatistics writes them) the logits are a part of longer rows that have these.
template <typename T>
struct CrossEntropy {
  T* logits;
  const std::int64_t* targets;
  const Wide<T>* statistics;  ///< may be null
  double* losses;
  std::int64_t all_rows;  ///< of the statistics
  std::int64_t vocab;
  double scale;
  bool gradient;
  void run(Rows rows) const;
};

/// Sums rows of `dout` into rows of `dtable`. order[begin, end) are positions in dout, sorted by id; a run of
/// equal ids is summed in Wide<T> before it is written. `sum` is scratch of `size`. The range starts and ends
/// between runs.
template <typename T>
struct EmbeddingGradient {
  const T* dout;
  const std::int64_t* ids;
  const std::int64_t* order;
  Wide<T>* sum;
  T* dtable;
  std::int64_t size;
  void run(Rows range) const;
};

}  // namespace ndmesh::nn::cpu
