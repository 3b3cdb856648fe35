#include <gtest/gtest.h>

#include <algorithm>

#include "ndmesh/model/config.h"

namespace ndmesh::model {
namespace {

// Closed forms of published numbers: Llama-2-7B and a tied 1B model.
TEST(Flops, CountHeadAlwaysAndTableNever) {
  const ModelSpec llama2 = spec_from_config(R"({"model_type": "llama"})", "config.json");
  const FlopsPerToken flops = flops_per_token(llama2, 4096);
  EXPECT_EQ(flops.weights, 39642464256.0);
  EXPECT_EQ(flops.attention, 3221225472.0);
  EXPECT_EQ(flops.total(), 39642464256.0 + 3221225472.0);
  EXPECT_NEAR(flops.weights * 4 * 8192 / 1e12, 1299.00, 0.005);
  EXPECT_NEAR(flops_per_token(llama2, 8192).attention * 4 * 8192 / 1e12, 211.11, 0.005);
  EXPECT_EQ(flops_per_token(preset("llama-3.2-1b"), 1).weights, 6.0 * 1235746816);
}

// Of a token in a sequence as long as the window and longer: counted pair by pair.
TEST(Flops, WindowsCountThePairsInside) {
  ModelSpec spec = preset("llama-1m");
  const double full = flops_per_token(spec, 64).attention;
  spec.sliding_window = 64;
  EXPECT_EQ(flops_per_token(spec, 64).attention, full);
  EXPECT_EQ(flops_per_token(spec, 32).attention, full / 2);
  double pairs = 0;
  for (int token = 0; token < 4096; ++token) pairs += std::min(token + 1, 64);
  EXPECT_NEAR(flops_per_token(spec, 4096).attention / full * 64 / 2, pairs / 4096, 0.01);
  spec.windowed = {true, true, false, true, true};
  EXPECT_DOUBLE_EQ(flops_per_token(spec, 4096).attention,
                   (4 * (128 - 1.0) + 4096) * 6 * static_cast<double>(spec.heads * spec.head_dim));
}

// 6 per active parameter of a product, by hand; DeepSeek-V3's attention by its widths.
TEST(Flops, OfExpertsOnlyThoseThatATokenMeets) {
  const ModelSpec mixtral = preset("mixtral-8x7b");
  const std::int64_t norms = (2 * 32 + 1) * 4096;
  EXPECT_EQ(flops_per_token(mixtral, 1).weights,
            6.0 * static_cast<double>(12879925248 - 32000 * 4096 - norms));
  ModelSpec deepseek = preset("deepseek-v3");
  EXPECT_EQ(flops_per_token(deepseek, 4096).attention, 3.0 * 128 * (192 + 128) * 4096 * 61);
  const double without = flops_per_token(deepseek, 4096).weights;
  deepseek.mtp_layers = 1;
  double layer = 0;
  for (const LayerParameter& parameter : deepseek.layer_parameters(61)) {
    const double share = is_expert(parameter.spec.role) ? 8.0 / 256 : 1;
    if (parameter.spec.shape.size() == 2) layer += share * static_cast<double>(parameter.elements());
  }
  EXPECT_DOUBLE_EQ(flops_per_token(deepseek, 4096).weights - without, 6 * (layer + 129280.0 * 7168));
}

// gpt-oss stacks its experts in one tensor, whose biases have two dims; by hand: q, k, v, o, router, 4 of 32
// experts.
TEST(Flops, StackedExpertsAndBiases) {
  const ModelSpec spec = spec_from_config(
      R"({"model_type": "gpt_oss", "num_hidden_layers": 24, "num_local_experts": 32})", "gpt-oss-20b");
  const double layer = 2880.0 * (4096 + 512 + 512 + 4096 + 32) + 4 * 3 * 2880.0 * 2880;
  EXPECT_EQ(flops_per_token(spec, 1).weights, 6 * (24 * layer + 201088.0 * 2880));
}

}  // namespace
}  // namespace ndmesh::model
