#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "ndmesh/model/model_spec.h"
#include "ndmesh/nn/attention_options.h"
#include "ndmesh/nn/ports.h"

/// The operators of the decoder: differentiable, on any device, float64, float32 or bfloat16. On the CPU
/// norms, rotary embedding, gated activations, cross-entropy and the embedding gradient run own fused loops
/// (cpu_kernels.h), attention own tiles (cpu_attention.h) and float32 products own blocks (cpu_matmul.h), because
/// libtorch's cost more there or round more often; elsewhere the composites of
/// libtorch (kernels.h). Gradients of parameters are booked as MemoryCategory::buffers. Arguments that do not
/// fit each other, and token ids outside of the vocabulary (RunError), throw before anything is computed.
/// Shape letters: B batch, S sequence, H hidden, F ffn, V vocabulary, N query heads, K key/value heads, D
/// head size.
namespace ndmesh::nn {

using model::Activation;

/// x + bias_H. Saves nothing.
at::Tensor add_bias(const at::Tensor& x, const at::Tensor& bias_H);

/// x_...I times a weight of shape OI, or IO where `transposed` (gpt2), plus bias_O where defined. Saves x and the weight.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias_O,
                  bool transposed = false);

enum class NormKind {
  rms,              ///< x / sqrt(mean(x^2) + eps) * weight
  unit_offset_rms,  ///< the same with 1 + weight (gemma)
  layer             ///< (x - mean) / sqrt(variance + eps) * weight + bias
};

struct NormParameters {
  at::Tensor weight;
  at::Tensor bias;  ///< of LayerNorm; undefined otherwise
  double eps = 1e-6;
  NormKind kind = NormKind::rms;
};

/// The norm over the last dim, statistics in float32 or wider. Saves x and one number a row, LayerNorm two.
at::Tensor norm(const at::Tensor& x, const NormParameters& parameters);

/// RMSNorm of a last dim of which several ranks have equal parts, x being this one's. `mean` makes of a number for each row,
/// [..., 1], its mean over those ranks; it is called once in forward and once in backward. Saves what norm does.
at::Tensor norm_of_part(const at::Tensor& x, const NormParameters& parameters, const Port& mean);

/// x + y and its norm, in one pass: (sum, norm(sum)).
std::pair<at::Tensor, at::Tensor> add_norm(const at::Tensor& x, const at::Tensor& y,
                                           const NormParameters& parameters);

/// The two as RMSNorm.
inline at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  return norm(x, {weight, {}, eps, NormKind::rms});
}
inline std::pair<at::Tensor, at::Tensor> add_rms_norm(const at::Tensor& x, const at::Tensor& y,
                                                      const at::Tensor& weight, double eps) {
  return add_norm(x, y, {weight, {}, eps, NormKind::rms});
}

/// activation(gate) * up; `up` may be undefined: activation(gate). Saves both.
at::Tensor gated(Activation activation, const at::Tensor& gate, const at::Tensor& up);

/// The same of the halves gate and up of one tensor's last dim. Saves it.
at::Tensor gated_halves(Activation activation, const at::Tensor& gate_up);

/// silu(gate) * up.
inline at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  return gated(Activation::silu, gate, up);
}

/// x * factor. Saves nothing.
at::Tensor scaled(const at::Tensor& x, double factor);

/// Cuts the last dim, `queries` + 2 * keys wide, into dense q, k and v. Saves nothing.
std::tuple<at::Tensor, at::Tensor, at::Tensor> split_qkv(const at::Tensor& fused, std::int64_t queries);

/// Rotates the halves of the first 2 * D2 numbers of each head: x_BSND with cos_SD2, sin_SD2 (2 * D2 at most D;
/// float32, or float64 for float64 x). Saves only the tables.
at::Tensor rotate(const at::Tensor& x_BSND, const at::Tensor& cos_SD2, const at::Tensor& sin_SD2);

/// Causal attention of q_BSND over k_BSKD, v_BSKD; N is a multiple of K. Returns BSND. Query i stands at position
/// past + i: it sees no later key, and with a window none from further back. Saves q, k, v, the output and one
/// number a row. There are no gradients over past keys.
at::Tensor attention(const at::Tensor& q_BSND, const at::Tensor& k_BSKD, const at::Tensor& v_BSKD,
                     const AttentionOptions& options = {});

/// Rows of table_VH by ids_BS. The gradient of each row is summed in float32 or wider. With `of` above 0 the table is the
/// rows from `first` on of one of `of` rows, and ids of other rows give zero.
at::Tensor embed(const at::Tensor& table_VH, const at::Tensor& ids_BS, std::int64_t first = 0,
                 std::int64_t of = 0);

/// Where the weight of the head is only rows `first` to first + rows - 1 of a vocabulary of `of` tokens; what follows them
/// in the weight is padding, without any effect.
struct VocabularyPart {
  /// From this part's statistics of T rows of logits, [3, T] in the wide dtype, to those of all parts, [parts, 3, T]: the
  /// largest logit, the sum of exp(logit - largest), and the target's logit where the target is in this part, else 0.
  using Gather = std::function<at::Tensor(const at::Tensor& statistics_3T)>;
  std::int64_t first = 0;
  std::int64_t rows = 0;
  std::int64_t of = 0;
  Gather gather;  ///< empty: the weight is whole
};

struct HeadOptions {
  double scale = 1;  ///< of the sum: 1 / (valid tokens of the global batch), so that nothing else divides
  std::int64_t chunk = 256;  ///< tokens whose logits exist at a time
  std::optional<double> softcap = {};
  VocabularyPart vocabulary = {};
};

/// What the head and the loss make of hidden states: sum over valid tokens of -log softmax(x .
/// weight_VH^T)[target], times `scale`. Targets of `ignored` count nothing. Logits exist only `chunk` tokens
/// at a time, and their gradient is made in the forward pass: memory is chunk * V, not tokens * V.
/// The weight gradient of several bfloat16 chunks is summed in float32 and rounded once.
/// Log-sum-exp and the returned scalar are float32, or float64 for float64 x. With `softcap` a logit z counts as
/// cap * tanh(z / cap), and a second buffer of chunk * V is held. With a part of the vocabulary every part
/// returns the whole loss, and the gradient of x is what this part adds to it.
at::Tensor head_loss(const at::Tensor& x_BSH, const at::Tensor& weight_VH, const at::Tensor& targets_BS,
                     const HeadOptions& options);
inline constexpr std::int64_t ignored = -100;

}  // namespace ndmesh::nn
