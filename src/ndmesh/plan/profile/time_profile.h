#pragma once

#include <cstdint>

#include "ndmesh/plan/profile/runtime.h"

namespace ndmesh::plan {

/// How attention is computed: `unfused` writes the scores of all token pairs to memory, causal or not; the
/// others (FlashAttention 1, 2, 3; Dao et al.) keep them on chip and skip what the mask hides.
enum class AttentionKernel : std::uint8_t { unfused, flash1, flash2, flash3 };

/// What `recompute.policy: selective` computes again.
struct SelectiveRecompute {
  bool attention = false;    ///< the attention core
  bool elementwise = false;  ///< norms and activations
  double products = 0;       ///< share of the linear layers' forward products
  bool operator==(const SelectiveRecompute&) const = default;
};

/// How one runtime spends time: which collectives it overlaps with what, what its fused kernels save. Plain
/// values: a measurement of an older version sets what that version did.
struct TimeProfile {
  AttentionKernel attention = AttentionKernel::flash2;
  /// Bytes that elementwise ops, norms and activations move, relative to one fused kernel for each: 1 fused
  /// or compiled; about 2 when every elementwise op is a kernel.
  double elementwise_passes = 1;
  std::int64_t vocabulary_multiple = 1;  ///< the vocabulary is padded to a multiple of this times tp
  bool pads_uncut_vocabulary = true;     ///< also where tp is 1
  double score_passes = 1;  ///< the same for the scores of unfused attention: 1 with a fused softmax
  /// The fused softmax takes whole groups of so many heads (of all sequences together); what is no multiple
  /// runs op by op. 1: anything.
  std::int64_t softmax_heads = 1;
  SelectiveRecompute selective;
  double loss_bytes =
      12;  ///< moved for one logit, forward and backward (fused cross-entropy 12, eager fp32 40)
  bool gradient_accumulation_fused = true;  ///< the weight-gradient product adds into the gradient itself
  std::int64_t gradient_bytes = 4;          ///< of one gradient element on the wire

  bool overlap_gradients = true;   ///< reduction over the data axes runs under the last backward
  bool overlap_parameters = true;  ///< zero 1, 2: updated parameters are gathered under the next forward
  bool broadcasts_updates =
      false;             ///< zero 1, 2: each owner in turn broadcasts its part, instead of one all-gather
  bool prefetch = true;  ///< zero 3: a unit is gathered while the one before it computes
  bool overlap_tensor = false;          ///< tp collectives are cut and pipelined with their products
  bool overlap_tensor_backward = true;  ///< tp reductions of backward run under weight-gradient products
  bool overlap_experts = false;         ///< all-to-all of one micro-batch under the compute of another
  bool dispatch_once = false;  ///< a token goes once to each node and rank, however many experts it has there
  bool overlap_sends = true;   ///< pipeline transfers do not stop compute

  bool reduce_each_micro_batch =
      false;                     ///< zero 2, 3: gradients are reduced at every micro-batch, not once a step
  bool balanced_experts = true;  ///< all experts get equally many tokens, whatever the skew (benchmarks)
  bool clips_gradients = true;   ///< the norm of all gradients, and a pass that scales them
  bool starts_idle = false;      ///< each pass of a layer begins on an idle device: its first launches show
  bool graphs = false;           ///< kernels are launched as graphs: no host time for each

  bool operator==(const TimeProfile&) const = default;
};

/// The profile of a runtime as people run it today.
TimeProfile time_profile(Runtime runtime);

}  // namespace ndmesh::plan
