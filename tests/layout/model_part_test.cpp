#include "ndmesh/layout/model_part.h"

#include <gtest/gtest.h>

#include "ndmesh/model/config.h"

namespace ndmesh::layout {
namespace {

using mesh::Mesh;

/// 24 query heads of 16, 4 KV heads, a vocabulary of 257.
model::ModelSpec spec() {
  model::ModelSpec spec = model::preset("llama-1m");
  spec.tied = false;
  spec.vocab = 257;
  spec.heads = 24;
  spec.kv_heads = 4;
  spec.head_dim = 16;
  spec.ffn = 130;
  return spec;
}

TEST(ModelPart, WidthsAreThoseOfTheParameterLayouts) {
  for (const std::int64_t tp : {1, 2, 4, 8, 12, 24}) {
    const Mesh mesh({.tp = tp, .dp_shard = 2});
    const auto layouts = parameter_layouts(spec(), Mesh({.tp = tp}));
    const auto rows = [&](const char* end, std::int64_t rank) {
      for (const ParameterLayout& layout : layouts) {
        if (layout.spec.name.ends_with(end)) return layout.tensor.padded_local_shape(rank)[0];
      }
      throw std::logic_error(end);
    };
    for (std::int64_t rank = 0; rank < mesh.world(); ++rank) {
      const ModelPart part = tensor_part(spec(), mesh, rank, true);
      const std::int64_t index = rank % tp;
      EXPECT_EQ(part.heads * 16, rows("layers.0.self_attn.q_proj.weight", index)) << tp;
      EXPECT_EQ(part.kv_heads * 16, rows("layers.0.self_attn.k_proj.weight", index)) << tp;
      EXPECT_EQ(part.ffn, rows("layers.0.mlp.up_proj.weight", index)) << tp;
      EXPECT_EQ(part.vocabulary_rows, rows("lm_head.weight", index)) << tp;
      EXPECT_EQ(part.sequence_parts, tp);
      EXPECT_EQ(part.sequence_part, index);
    }
  }
}

TEST(ModelPart, RealRowsOfTheVocabularyFollowOneAnother) {
  for (const std::int64_t tp : {1, 2, 3, 24}) {
    std::int64_t next = 0;
    for (std::int64_t rank = 0; rank < tp; ++rank) {
      const ModelPart part = tensor_part(spec(), Mesh({.tp = tp}), rank, false);
      EXPECT_EQ(part.vocabulary.start, next);
      EXPECT_LE(part.vocabulary.size, part.vocabulary_rows);
      EXPECT_EQ(part.sequence_parts, 1);
      next += part.vocabulary.size;
    }
    EXPECT_EQ(next, 257);
  }
}

TEST(ModelPart, OneRankHasAll) {
  const ModelPart part = tensor_part(spec(), Mesh(mesh::MeshSizes{}), 0, true);
  const ModelPart whole = whole_part(spec());
  EXPECT_EQ(part.heads, whole.heads);
  EXPECT_EQ(part.kv_heads, whole.kv_heads);
  EXPECT_EQ(part.vocabulary, whole.vocabulary);
  EXPECT_EQ(part.vocabulary_rows, whole.vocabulary_rows);
  EXPECT_EQ(part.layers, (Range{0, 5}));
}

}  // namespace
}  // namespace ndmesh::layout
