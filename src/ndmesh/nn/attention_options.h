#pragma once

#include <cstdint>

namespace ndmesh::nn {

/// How a query meets its keys; the defaults are plain causal attention.
struct AttentionOptions {
  double scale = 0;         ///< what scores are multiplied by; 0: 1 / sqrt(D)
  double softcap = 0;       ///< c: scores become c * tanh(score / c) before the mask (Gemma 2); 0: none
  std::int64_t window = 0;  ///< a query sees its own position and the window - 1 before it; 0: all before it
  std::int64_t past = 0;    ///< keys in front of the first query's own position (generation)
};

}  // namespace ndmesh::nn
