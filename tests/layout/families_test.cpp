#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "ndmesh/base/error.h"
#include "ndmesh/layout/layout.h"
#include "ndmesh/model/config.h"

namespace ndmesh::layout {
namespace {

using mesh::Axis;
using mesh::Mesh;
using mesh::MeshSizes;
using model::ModelSpec;
using testing::ElementsAre;

ModelSpec small(const std::string& family) {
  std::ifstream file(std::string(NDMESH_TEST_DATA) + "/model_families/" + family + ".json");
  return model::spec_from_config(nlohmann::json::parse(file).front()["config"].dump(), family);
}

/// The parameter of `layer` whose name ends so.
model::LayerParameter named(const ModelSpec& spec, std::int64_t layer, const std::string& end) {
  for (const model::LayerParameter& parameter : spec.layer_parameters(layer)) {
    if (parameter.spec.name.ends_with(end)) return parameter;
  }
  throw std::runtime_error("no parameter " + end);
}

Part part_of(const ModelSpec& spec, std::int64_t layer, const std::string& end, const MeshSizes& sizes) {
  return fullest_part(named(spec, layer, end), spec, sizes);
}

// Every element lives somewhere, and as often as copies say: for each role that a family has.
TEST(FamilyLayouts, PartsSumToTheModel) {
  for (const std::string& family : model::supported_families()) {
    const ModelSpec spec = small(family);
    for (const MeshSizes& sizes : {MeshSizes{.tp = 2, .dp_shard = 3}, MeshSizes{.tp = 6, .pp = 3},
                                   MeshSizes{.tp = 2, .cp = 2, .dp_shard = 2, .dp_replicate = 2, .pp = 2}}) {
      const Mesh mesh(sizes);
      for (const ParameterLayout& layout : parameter_layouts(spec, mesh)) {
        double elements_in_all = 0;
        for (std::int64_t rank = 0; rank < mesh.world() / sizes.pp; ++rank) {
          const std::vector<Box> boxes = layout.tensor.boxes(rank);
          const auto copies = layout.tensor.box_copies(rank, mesh::loss_axes.with(Axis::tp));
          for (std::size_t i = 0; i < boxes.size(); ++i) {
            elements_in_all += static_cast<double>(elements(boxes[i])) / static_cast<double>(copies[i]);
          }
        }
        EXPECT_NEAR(elements_in_all, static_cast<double>(layout.spec.elements()), 1e-6)
            << family << " " << sizes.name() << " " << layout.spec.name;
      }
    }
  }
}

// Norms over all heads go with their heads, shared ones too: 6 query heads over 2.
TEST(FamilyLayouts, NormsOverAllHeadsGoWithTheirHeads) {
  const ModelSpec spec = small("olmo2");
  ASSERT_TRUE(spec.qk_norm_whole);
  for (const std::int64_t tp : {2, 6}) {
    const auto layouts = parameter_layouts(spec, Mesh(MeshSizes{.tp = tp}));
    const auto find = [&](const std::string& name) {
      const std::string full = "model.layers.0.self_attn." + name;
      return *std::find_if(layouts.begin(), layouts.end(),
                           [&](const auto& l) { return l.spec.name == full; });
    };
    for (const char* of : {"q", "k"}) {
      const ParameterLayout norm = find(of + std::string("_norm.weight"));
      const ParameterLayout rows = find(of + std::string("_proj.weight"));
      for (std::int64_t rank = 0; rank < tp; ++rank) {
        EXPECT_EQ(norm.tensor.boxes(rank).front().front(), rows.tensor.boxes(rank).front().front()) << rank;
      }
      EXPECT_EQ(norm.gradient_reduction_axes, rows.gradient_reduction_axes);
      EXPECT_EQ(norm.norm_axes, rows.norm_axes);
    }
  }
}

// The counted part against the layout of single ranks, where both exist.
TEST(FamilyLayouts, FullestPartIsTheLargestOfAnyRank) {
  for (const std::string& family : model::supported_families()) {
    const ModelSpec spec = small(family);
    for (const std::int64_t tp : {1, 2, 6}) {
      const MeshSizes sizes = {.tp = tp};
      std::map<std::string, std::int64_t> largest;
      for (const ParameterLayout& layout : parameter_layouts(spec, Mesh(sizes))) {
        for (std::int64_t rank = 0; rank < tp; ++rank) {
          std::int64_t& most = largest[layout.spec.name];
          most = std::max(most, layout.tensor.padded_local_elements(rank));
        }
      }
      const auto expect_same = [&](const model::LayerParameter& parameter) {
        if (tp > 1 && is_expert(parameter.spec.role))
          return;  // shared out over tp as copies are over dp_shard
        EXPECT_EQ(fullest_part(parameter, spec, sizes).elements(),
                  parameter.copies * largest.at(parameter.spec.name))
            << family << " tp=" << tp << " " << parameter.spec.name;
      };
      for (const model::ParameterSpec& end : spec.end_parameters()) expect_same({end, 1});
      for (std::int64_t layer = 0; layer < spec.layers; ++layer) {
        for (const model::LayerParameter& parameter : spec.layer_parameters(layer)) expect_same(parameter);
      }
    }
  }
}

TEST(FullestPart, ExpertsGoOverEpAndEtpOnly) {
  const ModelSpec mixtral = model::preset("mixtral-8x7b");
  Part part = part_of(mixtral, 0, "experts.0.w1.weight", {.tp = 4, .dp_shard = 8, .ep = 4});
  EXPECT_THAT(part.shape, ElementsAre(14336, 4096));
  EXPECT_EQ(part.copies, 2);
  part = part_of(mixtral, 0, "experts.0.w2.weight", {.tp = 4, .dp_shard = 8, .ep = 4, .etp = 2});
  EXPECT_THAT(part.shape, ElementsAre(4096, 7168));
  part = part_of(mixtral, 0, "block_sparse_moe.gate.weight", {.tp = 4, .ep = 4});
  EXPECT_THAT(part.shape, ElementsAre(8, 4096));

  const ModelSpec deepseek = model::preset("deepseek-v3");
  part = part_of(deepseek, 60, "experts.0.up_proj.weight", {.dp_shard = 64, .ep = 64});
  EXPECT_EQ(part.copies, 4);
  EXPECT_EQ(part.elements(), 4 * 2048 * 7168);
  EXPECT_THAT(part_of(deepseek, 60, "shared_experts.up_proj.weight", {.tp = 2}).shape,
              ElementsAre(1024, 7168));
  EXPECT_THAT(part_of(deepseek, 60, "q_a_proj.weight", {.tp = 8}).shape, ElementsAre(1536, 7168));
  EXPECT_THAT(part_of(deepseek, 60, "q_b_proj.weight", {.tp = 8}).shape, ElementsAre(24576 / 8, 1536));
  EXPECT_THAT(part_of(deepseek, 60, "kv_b_proj.weight", {.tp = 8}).shape, ElementsAre(32768 / 8, 512));
}

TEST(FullestPart, StackedExpertsOfGptOss) {
  const ModelSpec spec = model::spec_from_config(R"({"model_type": "gpt_oss"})", "gpt-oss-120b");
  const MeshSizes sizes = {.tp = 8, .dp_shard = 8, .ep = 16, .etp = 2};
  EXPECT_THAT(part_of(spec, 0, "experts.gate_up_proj", sizes).shape, ElementsAre(8, 2880, 2880));
  EXPECT_THAT(part_of(spec, 0, "experts.gate_up_proj_bias", sizes).shape, ElementsAre(8, 2880));
  EXPECT_THAT(part_of(spec, 0, "experts.down_proj", sizes).shape, ElementsAre(8, 1440, 2880));
  EXPECT_THAT(part_of(spec, 0, "experts.down_proj_bias", sizes).shape, ElementsAre(8, 2880));
  EXPECT_THAT(part_of(spec, 0, "self_attn.sinks", sizes).shape, ElementsAre(8));
  EXPECT_THAT(part_of(spec, 0, "self_attn.k_proj.bias", sizes).shape, ElementsAre(64));
}

TEST(FullestPart, FusedAndTransposedMatrices) {
  const ModelSpec gpt2 = model::preset("gpt-175b");
  EXPECT_THAT(part_of(gpt2, 0, "c_attn.weight", {.tp = 8}).shape, ElementsAre(12288, 3 * 1536));
  EXPECT_THAT(part_of(gpt2, 0, "c_attn.bias", {.tp = 8}).shape, ElementsAre(3 * 1536));
  EXPECT_THAT(part_of(gpt2, 0, "mlp.c_proj.weight", {.tp = 8}).shape, ElementsAre(6144, 12288));
  EXPECT_THAT(part_of(gpt2, 0, "mlp.c_proj.bias", {.tp = 8}).shape, ElementsAre(12288));
  // 2 KV heads of 8 on 4 ranks: two ranks hold each, beside 12 of the 48 query rows.
  ModelSpec phi3 = small("phi3");
  phi3.heads = 8;
  phi3.hidden = 64;
  EXPECT_THAT(part_of(phi3, 0, "qkv_proj.weight", {.tp = 4}).shape, ElementsAre(16 + 2 * 8, 64));
}

// gpt2's q, k and v lie one after another: a rank of two holds half of each.
TEST(FamilyLayouts, FusedPartsAreCutEach) {
  const ModelSpec gpt2 = small("gpt2");
  for (const ParameterLayout& layout : parameter_layouts(gpt2, Mesh(MeshSizes{.tp = 2}))) {
    if (layout.spec.name != "transformer.h.0.attn.c_attn.weight") continue;
    EXPECT_THAT(layout.tensor.boxes(1),
                ElementsAre(Box{{0, 48}, {24, 24}}, Box{{0, 48}, {72, 24}}, Box{{0, 48}, {120, 24}}));
  }
}

TEST(FamilyLayouts, StagesOfPositionsAndMtpLayers) {
  for (const ParameterLayout& layout : parameter_layouts(small("gpt2"), Mesh(MeshSizes{.pp = 3}))) {
    if (layout.spec.role == model::Role::positions) {
      EXPECT_EQ(layout.first_stage, 0);
      EXPECT_EQ(layout.last_stage, 0);
    }
    if (layout.spec.role == model::Role::embedding) {
      EXPECT_EQ(layout.last_stage, 2);  // tied
    }
  }
  ModelSpec spec = small("deepseek_v3");
  spec.mtp_layers = 2;
  std::int64_t of_mtp = 0;
  for (const ParameterLayout& layout : parameter_layouts(spec, Mesh(MeshSizes{.pp = 2}))) {
    if (layout.spec.layer < spec.layers) continue;
    EXPECT_EQ(layout.first_stage, 1) << layout.spec.name;
    ++of_mtp;
  }
  EXPECT_GT(of_mtp, 2 * 20);
}

// tp ranks send a routed expert different tokens, although they share it out among themselves.
TEST(FamilyLayouts, GradientsOfExpertsAreSummedOverTp) {
  const Mesh mesh(MeshSizes{.tp = 2, .dp_shard = 2, .dp_replicate = 2});
  for (const ParameterLayout& layout : parameter_layouts(small("mixtral"), mesh)) {
    if (!is_expert(layout.spec.role)) continue;
    EXPECT_EQ(layout.gradient_reduction_axes.name(), "tp+dp_shard+dp_replicate");
    EXPECT_EQ(layout.gradient_scatter_axes.name(), "tp+dp_shard");
    EXPECT_EQ(layout.tensor.local_shape(0).front(), layout.spec.shape.front() / 4);
  }
}

TEST(FamilyLayouts, SpreadExpertsAreRefusedByName) {
  const ModelSpec spec = small("mixtral");
  try {
    parameter_layouts(spec, Mesh(MeshSizes{.dp_shard = 3, .ep = 3}));
    FAIL();
  } catch (const RequestError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("mesh.ep_size 3 and mesh.etp_size 1"));
  }
  EXPECT_THROW(parameter_layouts(small("llama"), Mesh(MeshSizes{.dp_shard = 2, .ep = 2})), RequestError);
}

}  // namespace
}  // namespace ndmesh::layout
