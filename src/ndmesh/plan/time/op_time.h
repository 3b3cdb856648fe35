#pragma once

#include "ndmesh/plan/time/rates.h"

namespace ndmesh::plan {

/// A matrix product [m, k] x [k, n], `batch` of them at once.
struct Product {
  double m = 0;
  double n = 0;
  double k = 0;
  double batch = 1;
  double flops() const { return 2 * m * n * k * batch; }
};

/// Fused attention of `tokens` queries on `heads` heads of one rank, each looking at `context` keys on
/// average.
struct AttentionShape {
  double tokens = 0;
  double heads = 0;
  double context = 0;
  double query_dim = 0;  ///< of a head's query and key
  double value_dim = 0;
  double passes = 1;  ///< kernels that share the context: steps of a ring
  double flops() const { return 2 * tokens * heads * context * (query_dim + value_dim); }
};

/// Attention that writes the scores of every pair of tokens, causal or not.
struct ScoreShape {
  AttentionShape attention;  ///< its context means nothing here
  double sequence = 0;       ///< keys that each query meets
  double count() const { return attention.tokens * attention.heads * sequence; }
};

/// Seconds of a product at `flops` FLOP/s of a large one: the output is cut into tiles of the shape that
/// suits it best; tiles run on the compute units in whole waves, or (stream-K, Osama et al. 2023) are dealt
/// out evenly, with pieces of tiles added up in float32; each tile pays a prologue along k; never faster than
/// its operands move. `extra_bytes` move beside them.
double product_seconds(const Rates& rates, const Product& product, double flops, double extra_bytes = 0);

/// Seconds to bring `elements` into the 8-bit format of products; 0 for other formats.
double cast_seconds(const Rates& rates, double elements);

/// Seconds to move `bytes` through memory in one kernel.
double move_seconds(const Rates& rates, double bytes);

/// Seconds of the two products of unfused attention, forward; the bytes of the scores are not in it. Heads
/// are many small products at once, which hide each other's prologues; only narrow heads keep units waiting.
double score_products_seconds(const Rates& rates, const ScoreShape& shape);

/// Seconds of fused attention (FlashAttention): forward, and backward with its 2.5 times as many FLOPs.
double flash_forward_seconds(const Rates& rates, const AttentionShape& shape);
double flash_backward_seconds(const Rates& rates, const AttentionShape& shape);

}  // namespace ndmesh::plan
