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

/// normed = sum / rms(sum) * weight and rstd = 1 / rms(sum), one a row, with sum = x + y. With y null sum is
/// x, and nothing is written to `sum`.
template <typename T>
struct RmsNormForward {
  const T* x;
  const T* y;
  const T* weight;
  T* sum;
  T* normed;
  Wide<T>* rstd;
  std::int64_t size;
  double eps;
  void run(Rows rows) const;
};

/// Gradients of the norm. dx (may be null) takes dsum too where that is not null. dweight (may be null) is
/// one row of `size` that is added to.
template <typename T>
struct RmsNormBackward {
  const T* x;
  const T* weight;
  const Wide<T>* rstd;
  const T* dnormed;
  const T* dsum;
  T* dx;
  Wide<T>* dweight;
  std::int64_t size;
  void run(Rows rows) const;
};

/// out = silu(gate) * up. "Rows" are elements.
template <typename T>
struct SwigluForward {
  const T* gate;
  const T* up;
  T* out;
  void run(Rows elements) const;
};

template <typename T>
struct SwigluBackward {
  const T* gate;
  const T* up;
  const T* dout;
  T* dgate;
  T* dup;
  void run(Rows elements) const;
};

/// Rotates the halves of each head. A row is one token with `heads` heads of 2 * half numbers; token t reads
/// row t % positions of the tables. sign -1 turns back (the gradient).
template <typename T>
struct Rotate {
  const T* x;
  const Wide<T>* cos;
  const Wide<T>* sin;
  T* out;
  std::int64_t heads;
  std::int64_t half;
  std::int64_t positions;
  Wide<T> sign;
  void run(Rows tokens) const;
};

/// losses[row] = log-sum-exp(row) - row[target], 0 where target is negative. With `gradient`, logits are
/// replaced by their gradient times `scale`: (softmax - onehot) * scale, or 0 where target is negative.
template <typename T>
struct CrossEntropy {
  T* logits;
  const std::int64_t* targets;
  double* losses;
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
