#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>

#include "ndmesh/nn/attention_options.h"
#include "ndmesh/nn/functional.h"

/// What the operators compute: forward and backward, as tensors. Called with autograd off. Shapes as in
/// functional.h.
namespace ndmesh::nn {

/// float64 for float64, otherwise float32: in what statistics and tables are kept.
at::ScalarType wide_dtype(at::ScalarType dtype);

/// What a norm adds to its weight.
double weight_offset(NormKind kind);

/// One implementation for a kind of device. Tensors are dense unless said otherwise; results are new, unless
/// "in place".
class Kernels {
 public:
  virtual ~Kernels() = default;

  /// out_MN = a_MK . b_KN, or added to what out holds; a and b may be transposed views.
  virtual void multiply(at::Tensor& out_MN, const at::Tensor& a_MK, const at::Tensor& b_KN,
                        bool add) const = 0;

  struct Normed {
    at::Tensor sum;     ///< x + y, undefined without y
    at::Tensor normed;  ///< norm(sum)
    at::Tensor mean;    ///< [rows], wide dtype; undefined unless LayerNorm
    at::Tensor rstd;    ///< [rows], wide dtype
  };
  /// y may be undefined: then x itself is normed.
  virtual Normed norm(const at::Tensor& x, const at::Tensor& y, const NormParameters& parameters) const = 0;

  struct NormGradients {
    at::Tensor dx;       ///< includes dsum
    at::Tensor dweight;  ///< of the dtype of weight, summed over rows in wide dtype, in an order that threads
                         ///< do not change
    at::Tensor dbias;    ///< likewise
  };
  struct NormBackward {
    at::Tensor x;  ///< what was normed
    at::Tensor weight;
    at::Tensor mean;  ///< undefined unless LayerNorm
    at::Tensor rstd;
    at::Tensor dnormed;
    at::Tensor dsum;  ///< the other gradient of x; may be undefined
    NormKind kind = NormKind::rms;
  };
  /// What is not wanted stays undefined; the bias's comes with the weight's, for LayerNorm.
  virtual NormGradients norm_backward(const NormBackward& in, bool want_dx, bool want_dweight) const = 0;

  /// activation(gate) * up; without `up`, activation(gate). Both may be the halves of one matrix.
  virtual at::Tensor gated(Activation activation, const at::Tensor& gate, const at::Tensor& up) const = 0;
  /// Writes dgate and, with up, dup, which lie as gate and up do.
  struct GatedGradients {
    at::Tensor dgate;
    at::Tensor dup;
  };
  virtual void gated_backward(Activation activation, const GatedGradients& out, const at::Tensor& gate,
                              const at::Tensor& up, const at::Tensor& dout) const = 0;

  /// sign 1 rotates forward, -1 back. What the tables are too narrow for stays as it is.
  virtual at::Tensor rotate(const at::Tensor& x_BSND, const at::Tensor& cos_SD2, const at::Tensor& sin_SD2,
                            int sign) const = 0;

  struct Attended {
    at::Tensor out_BSND;
    at::Tensor lse_BNS;  ///< log-sum-exp of each query's scores, wide dtype
  };
  /// What attention reads; strided tensors will do.
  struct AttentionInputs {
    at::Tensor q_BSND;
    at::Tensor k_BSKD;
    at::Tensor v_BSKD;
  };
  virtual Attended attention(const AttentionInputs& in, const AttentionOptions& options) const = 0;
  /// Gradients of the inputs, dense, where nothing was past.
  virtual AttentionInputs attention_backward(const AttentionInputs& in, const Attended& forward,
                                             const at::Tensor& dout_BSND,
                                             const AttentionOptions& options) const = 0;

  /// [vocab, H]: row ids[t] is the sum of the rows t of dout. Ids that are none of 0 .. vocab - 1 count nothing.
  virtual at::Tensor embedding_gradient(const at::Tensor& ids, const at::Tensor& dout,
                                        std::int64_t vocab) const = 0;

  /// Of each row: the largest logit, the sum of exp(logit - largest), the target's logit; wide dtype, [3, T]. A target that
  /// is none of 0 .. V - 1 gives 0. No logits at all: minus infinity, 0, 0.
  virtual at::Tensor logit_statistics(const at::Tensor& logits_TV, const at::Tensor& targets_T) const = 0;

  struct CrossEntropyOptions {
    double scale = 1;
    bool gradient = false;
    at::Tensor
        statistics_3T;  ///< of the whole rows, where logits_TV are a part of them; undefined: they are whole
  };
  /// Sum over rows of log-sum-exp(row) - row[target], float64 [1]. With `gradient`, logits_TV are replaced by
  /// their gradient times `scale`. Rows whose target is `ignored` count nothing and have gradient 0; a target
  /// from V on lies in another part of the row.
  virtual at::Tensor cross_entropy(at::Tensor& logits_TV, const at::Tensor& targets_T,
                                   const CrossEntropyOptions& options) const = 0;
};

/// Own loops (cpu_kernels.h), attention (cpu_attention.h) and products (cpu_matmul.h); what those do not compute,
/// libtorch's flash attention for CPUs and its products do.
const Kernels& cpu_kernels();
/// Plain libtorch operators, for any device.
const Kernels& composite_kernels();

/// The choice for the device of `tensor`: the one place in nn that asks.
const Kernels& kernels_for(const at::Tensor& tensor);

}  // namespace ndmesh::nn
