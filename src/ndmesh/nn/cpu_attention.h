#pragma once

#include "ndmesh/nn/kernels.h"

/// Attention on a CPU in tiles (FlashAttention: Dao et al., 2022; Dao, 2023): scores exist 64 keys by 128 queries at a
/// time, tiles that no query sees are skipped, the softmax is online and in float32, products take bfloat16 or float32
/// and sum in float32 (oneDNN's batch-reduce product, which is faster here than both MKL's and libtorch's own
/// attention, docs/benchmarks.md). The query heads of one key/value head are queries of the same tiles, so nothing is
/// repeated for them and their gradients are summed on the way. Parallel over batch and key/value heads; results do not
/// depend on the number of threads. Scratch is 16 bytes a key and head size for each thread, and under 1 MiB besides.
namespace ndmesh::nn {

/// Whether tiles compute this: float32, or bfloat16 with even head size on a processor that multiplies bfloat16; and
/// enough queries to pay for laying out the keys.
bool tiles_can(const Kernels::AttentionInputs& in);

/// As Kernels::attention and Kernels::attention_backward, where tiles_can.
Kernels::Attended tiled_attention(const Kernels::AttentionInputs& in, const AttentionOptions& options);
Kernels::AttentionInputs tiled_attention_backward(const Kernels::AttentionInputs& in,
                                                  const Kernels::Attended& forward,
                                                  const at::Tensor& dout_BSND,
                                                  const AttentionOptions& options);

}  // namespace ndmesh::nn
