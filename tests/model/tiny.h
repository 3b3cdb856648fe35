#pragma once

#include "ndmesh/model/model_spec.h"

namespace ndmesh::test {

/// A dense llama of awkward sizes: 5 layers, 6 heads over 2, a head size that is not hidden / heads, an odd vocabulary;
/// 180240 parameters, 167904 when tied.
inline model::ModelSpec tiny(bool tied = false) {
  model::ModelSpec spec;
  spec.family = "llama";
  spec.vocab = 257;
  spec.hidden = 48;
  spec.layers = 5;
  spec.heads = 6;
  spec.kv_heads = 2;
  spec.head_dim = 16;
  spec.ffn = 130;
  spec.max_positions = 512;
  spec.norm_eps = 1e-5;
  spec.tied = tied;
  return spec;
}

}  // namespace ndmesh::test
