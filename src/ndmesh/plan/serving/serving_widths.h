#pragma once

#include <cstdint>

#include "ndmesh/plan/serving/serving.h"

namespace ndmesh::plan {

/// Bytes that one token leaves in the cache of one layer on one of `tp` ranks: keys and values of max(1,
/// kv_heads / tp) heads, or the latent and the shared key of latent attention, which every rank holds. int8
/// has a float16 scale and zero for each head's key and value.
std::int64_t kv_bytes_of_layer(const model::ModelSpec& model, job::KvFormat format, std::int64_t tp);

/// Bytes of bfloat16 activations that one rank holds at most while a forward of `tokens` tokens passes a
/// layer: the residual stream, the normed input, a sub-layer's output, and the larger of what attention and
/// feed-forward have open at once. Experts are counted at balance. Attention scores are never whole in
/// memory.
std::int64_t prefill_bytes(const model::ModelSpec& model, bool moe, const Replica& replica,
                           std::int64_t tokens);

}  // namespace ndmesh::plan
