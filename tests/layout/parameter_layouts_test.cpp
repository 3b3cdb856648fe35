#include <gmock/gmock.h>

#include <algorithm>

#include "model/tiny.h"
#include "ndmesh/base/error.h"
#include "ndmesh/layout/layout.h"

namespace ndmesh::layout {
namespace {

using mesh::Axis;
using mesh::AxisSet;
using mesh::Mesh;
using mesh::MeshSizes;
using test::tiny;
using testing::ElementsAre;

model::ModelSpec llama(std::int64_t hidden, std::int64_t layers, std::int64_t heads, std::int64_t head_dim,
                       std::int64_t ffn, bool tied) {
  model::ModelSpec spec;
  spec.family = "llama";
  spec.vocab = 128256;
  spec.hidden = hidden;
  spec.layers = layers;
  spec.heads = heads;
  spec.kv_heads = 8;
  spec.head_dim = head_dim;
  spec.ffn = ffn;
  spec.max_positions = 131072;
  spec.tied = tied;
  return spec;
}

const ParameterLayout& named(const std::vector<ParameterLayout>& layouts, const std::string& name) {
  const auto found = std::find_if(layouts.begin(), layouts.end(),
                                  [&](const ParameterLayout& layout) { return layout.spec.name == name; });
  if (found == layouts.end()) throw std::runtime_error("no parameter " + name);
  return *found;
}

TEST(ParameterLayouts, OneRankHoldsAllAndReducesNothing) {
  const Mesh mesh{MeshSizes{}};
  const auto layouts = parameter_layouts(tiny(), mesh);
  EXPECT_EQ(local_elements(layouts, 0), 180240);
  EXPECT_EQ(local_elements(parameter_layouts(tiny(true), mesh), 0), 167904);
  for (const ParameterLayout& layout : layouts) {
    EXPECT_TRUE(layout.gradient_reduction_axes.empty());
    EXPECT_TRUE(layout.gradient_scatter_axes.empty());
    EXPECT_TRUE(layout.norm_axes.empty());
  }
}

TEST(ParameterLayouts, TensorParallelByRole) {
  model::ModelSpec spec = tiny();
  spec.qk_norm = spec.qkv_bias = spec.output_bias = spec.mlp_bias = true;
  const auto layouts = parameter_layouts(spec, Mesh(MeshSizes{.tp = 2}));
  const auto box = [&](const std::string& name) { return named(layouts, name).tensor.boxes(1); };
  const std::string layer = "model.layers.3.";
  EXPECT_THAT(box(layer + "self_attn.q_proj.weight"), ElementsAre(Box{{48, 48}, {0, 48}}));
  EXPECT_THAT(box(layer + "self_attn.q_proj.bias"), ElementsAre(Box{{48, 48}}));
  EXPECT_THAT(box(layer + "self_attn.k_proj.weight"), ElementsAre(Box{{16, 16}, {0, 48}}));
  EXPECT_THAT(box(layer + "self_attn.v_proj.bias"), ElementsAre(Box{{16, 16}}));
  EXPECT_THAT(box(layer + "self_attn.o_proj.weight"), ElementsAre(Box{{0, 48}, {48, 48}}));
  EXPECT_THAT(box(layer + "self_attn.o_proj.bias"), ElementsAre(Box{{0, 48}}));
  EXPECT_THAT(box(layer + "mlp.gate_proj.weight"), ElementsAre(Box{{65, 65}, {0, 48}}));
  EXPECT_THAT(box(layer + "mlp.up_proj.bias"), ElementsAre(Box{{65, 65}}));
  EXPECT_THAT(box(layer + "mlp.down_proj.weight"), ElementsAre(Box{{0, 48}, {65, 65}}));
  EXPECT_THAT(box(layer + "mlp.down_proj.bias"), ElementsAre(Box{{0, 48}}));
  EXPECT_THAT(box("model.embed_tokens.weight"), ElementsAre(Box{{129, 128}, {0, 48}}));
  EXPECT_THAT(box("lm_head.weight"), ElementsAre(Box{{129, 128}, {0, 48}}));
  const AxisSet tp = {Axis::tp};
  for (const ParameterLayout& layout : layouts) {
    const bool row_bias = layout.spec.bias && (layout.spec.role == model::Role::attention_output ||
                                               layout.spec.role == model::Role::down);
    const bool norm = layout.spec.role == model::Role::norm || layout.spec.role == model::Role::head_norm;
    EXPECT_EQ(layout.gradient_reduction_axes, norm || row_bias ? tp : AxisSet{}) << layout.spec.name;
    EXPECT_EQ(layout.norm_axes, norm || row_bias ? AxisSet{} : tp) << layout.spec.name;
    EXPECT_TRUE(layout.gradient_scatter_axes.empty());
  }
}

TEST(ParameterLayouts, TensorParallelCountsWithPadding) {
  const auto layouts = parameter_layouts(tiny(), Mesh(MeshSizes{.tp = 2}));
  EXPECT_EQ(padded_local_elements(layouts, 0), 90432);
  EXPECT_EQ(padded_local_elements(layouts, 1), 90432);
  EXPECT_EQ(local_elements(layouts, 0) + local_elements(layouts, 1),
            180240 + 528);  // 528 elements of norms twice
  const auto wide = parameter_layouts(tiny(), Mesh(MeshSizes{.tp = 2}), {.vocabulary_multiple = 128});
  EXPECT_THAT(named(wide, "lm_head.weight").tensor.padded_local_shape(1), ElementsAre(256, 48));
}

TEST(ParameterLayouts, VocabularyPaddingKeepsTheGlobalShape) {
  struct Case {
    std::int64_t vocab, tp, padded, padded_to_128;
  };
  for (const Case& c :
       {Case{151669, 4, 151672, 152064}, Case{129280, 24, 129288, 132096}, Case{151552, 6, 151554, 152064},
        Case{65535, 2, 65536, 65536}, Case{257, 2, 258, 512}, Case{151936, 2, 151936, 152064}}) {
    const Mesh mesh(MeshSizes{.tp = c.tp});
    for (const auto& [multiple, padded] :
         {std::pair{c.tp, c.padded}, std::pair{128 * c.tp, c.padded_to_128}}) {
      const TensorLayout layout({c.vocab, 8}, {Placement::padded({Axis::tp}, 0, multiple)}, mesh);
      EXPECT_EQ(layout.padded_local_shape(0)[0] * c.tp, padded);
      std::int64_t rows = 0;
      for (std::int64_t rank = 0; rank < c.tp; ++rank) rows += layout.local_shape(rank)[0];
      EXPECT_EQ(rows, c.vocab);
    }
  }
}

// 4 KV heads of 128 rows on 8 ranks: never half a head.
TEST(ParameterLayouts, NeighboursShareKeyHeads) {
  model::ModelSpec spec = tiny();
  spec.hidden = 2048;
  spec.heads = 32;
  spec.kv_heads = 4;
  spec.head_dim = 128;
  const auto layouts = parameter_layouts(spec, Mesh(MeshSizes{.tp = 8, .dp_shard = 2}));
  const ParameterLayout& key = named(layouts, "model.layers.0.self_attn.k_proj.weight");
  const auto whole = parameter_layouts(spec, Mesh(MeshSizes{.tp = 8}));
  for (std::int64_t rank = 0; rank < 8; ++rank) {
    const TensorLayout& tensor = named(whole, "model.layers.0.self_attn.k_proj.weight").tensor;
    EXPECT_THAT(tensor.boxes(rank), ElementsAre(Box{{rank / 2 * 128, 128}, {0, 2048}}));
  }
  EXPECT_EQ(key.tensor.copies(0, {Axis::tp}), 2);
  EXPECT_EQ(key.gradient_reduction_axes, (AxisSet{Axis::tp, Axis::dp_shard}));
  EXPECT_EQ(key.gradient_scatter_axes, (AxisSet{Axis::dp_shard}));
  EXPECT_EQ(key.norm_axes, (AxisSet{Axis::tp, Axis::dp_shard}));
}

TEST(ParameterLayouts, ShardRanksIncludeContextUnlessToldOtherwise) {
  const Mesh mesh(MeshSizes{.cp = 2, .dp_shard = 2, .dp_replicate = 2});
  const ParameterLayout with = parameter_layouts(tiny(), mesh)[0];
  EXPECT_EQ(with.gradient_reduction_axes, mesh::loss_axes);
  EXPECT_EQ(with.gradient_scatter_axes, mesh::shard_axes);
  EXPECT_EQ(with.norm_axes, mesh::shard_axes);
  EXPECT_THAT(with.tensor.local_shape(0), ElementsAre(65, 48));
  const ParameterLayout without = parameter_layouts(tiny(), mesh, {.shard_over_cp = false})[0];
  EXPECT_EQ(without.gradient_reduction_axes, mesh::loss_axes);
  EXPECT_EQ(without.gradient_scatter_axes, (AxisSet{Axis::dp_shard}));
  EXPECT_THAT(without.tensor.local_shape(0), ElementsAre(129, 48));
}

TEST(ParameterLayouts, ShardsAddUpToTheModel) {
  for (const MeshSizes& sizes : {MeshSizes{.dp_shard = 4}, MeshSizes{.dp_shard = 7},
                                 MeshSizes{.dp_shard = 300}, MeshSizes{.cp = 2, .dp_shard = 3}}) {
    const Mesh mesh(sizes);
    const auto layouts = parameter_layouts(tiny(), mesh);
    std::int64_t total = 0;
    for (std::int64_t rank = 0; rank < mesh.world(); ++rank) total += local_elements(layouts, rank);
    EXPECT_EQ(total, 180240) << sizes.name();
  }
}

TEST(ParameterLayouts, StagesHoldEveryLayerOnce) {
  struct Case {
    std::int64_t layers, stages;
    std::vector<std::int64_t> sizes;
  };
  for (const Case& c : {Case{30, 4, {8, 8, 7, 7}}, Case{10, 3, {4, 3, 3}},
                        Case{40, 16, {3, 3, 3, 3, 3, 3, 3, 3, 2, 2, 2, 2, 2, 2, 2, 2}}, Case{27, 2, {14, 13}},
                        Case{5, 2, {3, 2}}, Case{92, 3, {31, 31, 30}}}) {
    std::int64_t next = 0;
    for (std::int64_t stage = 0; stage < c.stages; ++stage) {
      const Range layers = stage_layers(c.layers, c.stages, stage);
      EXPECT_EQ(layers.start, next);
      EXPECT_EQ(layers.size, c.sizes[static_cast<std::size_t>(stage)]);
      next += layers.size;
    }
    EXPECT_EQ(next, c.layers);
  }
}

TEST(ParameterLayouts, TiedTableLivesOnBothEndsOfThePipeline) {
  for (const std::int64_t pp : {2, 5}) {
    const Mesh mesh(MeshSizes{.pp = pp});
    const auto layouts = parameter_layouts(tiny(true), mesh);
    const ParameterLayout& table = layouts.front();
    EXPECT_EQ(table.first_stage, 0);
    EXPECT_EQ(table.last_stage, pp - 1);
    EXPECT_TRUE(table.gradient_reduction_axes.contains(Axis::pp));
    std::int64_t total = 0;
    for (std::int64_t rank = 0; rank < pp; ++rank) total += local_elements(layouts, rank);
    EXPECT_EQ(total, 167904 + 257 * 48);  // the table twice; the model counts it once
    std::int64_t once = 0;
    for (const ParameterLayout& layout : layouts) once += layout.spec.elements();
    EXPECT_EQ(once, 167904);
    EXPECT_FALSE(layouts.back().gradient_reduction_axes.contains(Axis::pp));
    EXPECT_TRUE(layouts.back().norm_axes.contains(Axis::pp));
    EXPECT_EQ(table.held_on(1), pp == 2);
  }
}

TEST(ParameterLayouts, StageCountsOfPublishedModels) {
  const auto counts = [](const model::ModelSpec& spec) {
    const auto layouts = parameter_layouts(spec, Mesh(MeshSizes{.pp = 4}));
    std::vector<std::int64_t> result;
    for (std::int64_t stage = 0; stage < 4; ++stage) result.push_back(local_elements(layouts, stage));
    return result;
  };
  EXPECT_THAT(counts(llama(2048, 16, 32, 64, 8192, true)),
              ElementsAre(505954304, 243286016, 243286016, 505956352));
  EXPECT_THAT(counts(llama(4096, 32, 32, 128, 14336, false)),
              ElementsAre(2270232576, 1744896000, 1744896000, 2270236672));
}

TEST(ParameterLayouts, FullMeshHoldsEveryElement) {
  const Mesh mesh(MeshSizes{.tp = 2, .cp = 2, .dp_shard = 2, .dp_replicate = 2, .pp = 2});
  const auto layouts = parameter_layouts(tiny(), mesh);
  double total = 0;  // each held element weighted by 1 / copies
  for (std::int64_t rank = 0; rank < mesh.world(); ++rank) {
    for (const ParameterLayout& layout : layouts) {
      if (!layout.held_on(mesh.coordinate(rank, Axis::pp))) continue;
      total += static_cast<double>(layout.tensor.local_elements(rank)) /
               static_cast<double>(layout.tensor.copies(rank, mesh::loss_axes.with(Axis::tp)));
    }
  }
  EXPECT_NEAR(total, 180240, 1e-6);
}

TEST(ParameterLayouts, RefuseWhatTheModelCannotBeSplitInto) {
  try {
    parameter_layouts(tiny(), Mesh(MeshSizes{.tp = 4, .pp = 6}));
    FAIL() << "accepted";
  } catch (const RequestError& error) {
    EXPECT_EQ(error.problems().size(), 2u);  // 4 ranks for 6 query heads, 6 stages for 5 layers
  }
}

}  // namespace
}  // namespace ndmesh::layout
