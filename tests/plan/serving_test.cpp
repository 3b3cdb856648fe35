#include "ndmesh/plan/serving/serving.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "ndmesh/layout/layout.h"
#include "ndmesh/plan/serving/serving_weights.h"
#include "plan/serving_models.h"

namespace ndmesh::plan {
namespace {

constexpr std::int64_t no_limit = std::int64_t{1} << 30;

ServingBudget first_budget(const model::ModelSpec& model, const Replica& replica,
                           job::ServingKeys keys = {}) {
  ServingQuestion question = question_of(model, devices_of(8, h100_bytes));
  question.keys = keys;
  return serving_budgets(question, replica).front();
}

std::int64_t weights(const ServingBudget& budget) {
  return budget.bytes[MemoryCategory::parameters];
}

// Cache

/// A 92-layer model over eight stages: four of 12 layers, four of 11.
TEST(ServingCache, AStageHoldsTheCacheOfItsOwnLayers) {
  model::ModelSpec model = model::preset("llama-3-70b");
  model.layers = 92;
  const CacheRules rules;
  const auto budgets = serving_budgets(question_of(model, devices_of(8, h100_bytes)), {.pp = 8});
  ASSERT_EQ(budgets.size(), 8U);
  const std::int64_t room = static_cast<std::int64_t>(28.57 * gibi);
  for (const ServingBudget& budget : budgets) {
    const std::int64_t expected = budget.stage < 4 ? 9965666304 : 9135194112;
    EXPECT_EQ(sequence_bytes(budget.cache, rules, 202752), expected);
    EXPECT_EQ(longest_sequence(budget.cache, rules, room, 202752), 202752);
  }
  EXPECT_EQ(kv_bytes_per_token(model, job::KvFormat::bfloat16), 376832);
  EXPECT_LT(longest_sequence({.full = 376832}, rules, room, 202752), 202752);
}

/// tp beyond the KV heads copies them.
TEST(ServingCache, ARankHoldsAtLeastOneHead) {
  const model::ModelSpec model = model::preset("llama-3-70b");
  EXPECT_EQ(kv_bytes_per_token(model, job::KvFormat::bfloat16), 327680);
  EXPECT_EQ(first_budget(model, {.tp = 4}).cache.per_token(), 81920);
  EXPECT_EQ(first_budget(model, {.tp = 8}).cache.per_token(), 40960);
  EXPECT_EQ(first_budget(model, {.tp = 16}).cache.per_token(), 40960);
}

/// 48 layers, 4 KV heads of 128 in bfloat16 and 3 GiB.
TEST(ServingCache, TheLongestSequenceIsWholeBlocks) {
  const CacheShape shape = {.full = 98304};
  const CacheRules rules = {.block = 16};
  EXPECT_EQ(longest_sequence(shape, rules, 3 * gibi, no_limit), 32768);
  EXPECT_EQ(longest_sequence(shape, rules, 3 * gibi - 1, no_limit), 32752);
  EXPECT_EQ(longest_sequence(shape, rules, 3 * gibi, 32760), 32760);
  EXPECT_EQ(longest_sequence(shape, rules, 16 * 98304 - 1, no_limit), 0);
  EXPECT_EQ(longest_sequence(shape, rules, -5, no_limit), 0);
  EXPECT_EQ(longest_sequence(shape, {job::KvPolicy::reserve}, 3 * gibi - 1, no_limit), 32767);
}

/// head_dim is the configuration's, not hidden / heads: 5 layers, 2 KV heads of 16 in float32.
TEST(ServingCache, HeadDimIsTheModelsOwn) {
  model::ModelSpec model = model::preset("llama-1m");
  model.layers = 5;
  model.hidden = 32;
  model.heads = 4;
  model.kv_heads = 2;
  model.head_dim = 16;
  EXPECT_EQ(kv_bytes_per_token(model, job::KvFormat::float32), 1280);
  EXPECT_EQ(kv_bytes_per_token(model, job::KvFormat::fp8), 320);
  EXPECT_EQ(kv_bytes_per_token(model, job::KvFormat::int8), 5 * 2 * 2 * (16 + 4));
}

/// 24 layers, every second with a window of 128 tokens, 8 KV heads of 64: 2048 bytes a layer and token.
TEST(ServingCache, WindowedLayersKeepTheirWindow) {
  model::ModelSpec model = model::preset("llama-3-8b");
  model.layers = 24;
  model.head_dim = 64;
  model.sliding_window = 128;
  model.windowed.resize(24);
  for (std::size_t layer = 0; layer < 24; layer += 2) model.windowed[layer] = true;
  const CacheShape shape = first_budget(model, {}).cache;
  EXPECT_EQ(shape.full, 12 * 2048);
  EXPECT_EQ(shape.windowed, 12 * 2048);
  // 128 tokens that begin anywhere touch 9 blocks of 16.
  EXPECT_EQ(sequence_bytes(shape, {.block = 16}, 131072), std::int64_t{12 * 2048} * (131072 + 9 * 16));
  EXPECT_EQ(sequence_bytes(shape, {.block = 16}, 100), 12 * 2048 * (112 + 112));
  EXPECT_EQ(sequence_bytes(shape, {job::KvPolicy::reserve}, 131072),
            std::int64_t{12 * 2048} * (131072 + 128));
}

/// 70.272 KB a token (DeepSeek-V3, arXiv 2505.09343, table 1), whatever tp.
TEST(ServingCache, LatentsAreHeldWholeByEveryTpRank) {
  EXPECT_EQ(kv_bytes_per_token(deepseek_v3(), job::KvFormat::bfloat16), 70272);
  EXPECT_EQ(first_budget(deepseek_v3(), {.tp = 8, .etp = 8}).cache.per_token(), 70272);
}

TEST(ServingCache, ASharedBeginningIsHeldOnce) {
  const CacheShape shape = {.full = 100, .windowed = 10, .window = 64};
  const CacheRules rules = {job::KvPolicy::prefix, 16};
  // 1000 tokens are 63 blocks; 512 shared are 32; a window of 64 touches 5.
  EXPECT_EQ(own_bytes(shape, rules, 1000, 512), 31 * 16 * 100 + 5 * 16 * 10);
  EXPECT_EQ(own_bytes(shape, rules, 1000, 976), 2 * 16 * 100 + 2 * 16 * 10);
}

// Weights

TEST(ServingWeights, LowBitFormatsCountTheirScales) {
  EXPECT_EQ(stored_bytes(job::WeightFormat::bfloat16, 4096, 4096), 33554432);
  EXPECT_EQ(stored_bytes(job::WeightFormat::fp8, 4096, 4096), 16777216 + 32 * 32 * 4);
  EXPECT_EQ(stored_bytes(job::WeightFormat::fp8, 129, 1), 129 + 2 * 4);
  EXPECT_EQ(stored_bytes(job::WeightFormat::int8, 4096, 4096), 16777216 + 4096 * 4);
  EXPECT_EQ(stored_bytes(job::WeightFormat::int4, 4096, 4096), 8388608 + 4096 * 32 * 5 / 2);
  EXPECT_EQ(stored_bytes(job::WeightFormat::int4, 1, 3), 2 + 2 + 1);
}

/// Llama-2-7B in 4 bits with groups of 128: published checkpoints of AWQ have 3.89 GB.
TEST(ServingWeights, FourBitsOfLlama2) {
  model::ModelSpec model = model::preset("llama-3-8b");
  model.vocab = 32000;
  model.kv_heads = 32;
  model.ffn = 11008;
  ASSERT_EQ(model.parameter_count(), 6738415616);
  const double bytes =
      static_cast<double>(weights(first_budget(model, {}, {.weights = job::WeightFormat::int4})));
  EXPECT_NEAR(bytes / 1e9, 3.89, 0.005);
}

/// All experts are held, though a token meets two of eight.
TEST(ServingWeights, MoeHoldsTotalNotActiveParameters) {
  EXPECT_EQ(weights(first_budget(mixtral(), {})), 2 * 46702792704);
}

/// Half the experts, whole attention.
TEST(ServingWeights, ExpertsAreCutOverEp) {
  const std::int64_t experts = std::int64_t{32} * 8 * 3 * 14336 * 4096;
  const std::int64_t rest = 46702792704 - experts;
  EXPECT_EQ(weights(first_budget(mixtral(), {.attention_ranks = 2, .ep = 2})), 2 * (rest + experts / 2));
}

/// The layouts of single ranks are derived apart, box by box.
TEST(ServingWeights, FullestRankOfAStageIsTheLayoutsFullest) {
  for (const char* name : {"llama-3.2-1b", "llama-1m"}) {
    const model::ModelSpec model = model::preset(name);
    for (const Replica& replica :
         {Replica{}, Replica{.tp = 2}, Replica{.tp = 4, .pp = 3}, Replica{.pp = 5}}) {
      const mesh::Mesh mesh({.tp = replica.tp, .pp = replica.pp});
      const auto layouts = layout::parameter_layouts(model, mesh);
      const auto budgets = serving_budgets(question_of(model, devices_of(64, h100_bytes)), replica);
      for (const ServingBudget& budget : budgets) {
        std::int64_t fullest = 0;
        for (std::int64_t tp = 0; tp < replica.tp; ++tp) {
          fullest = std::max(fullest, layout::padded_local_elements(layouts, budget.stage * replica.tp + tp));
        }
        EXPECT_EQ(weights(budget), 2 * fullest) << name << " stage " << budget.stage;
      }
    }
  }
}

/// Stages of an untied model share it out: nothing is held twice, nothing is lost.
TEST(ServingWeights, StagesSumToTheModel) {
  const model::ModelSpec model = model::preset("llama-3-8b");
  for (const std::int64_t pp : {1, 3, 4, 32}) {
    std::int64_t sum = 0;
    for (const ServingBudget& budget :
         serving_budgets(question_of(model, devices_of(64, h100_bytes)), {.pp = pp})) {
      sum += weights(budget);
    }
    EXPECT_EQ(sum, 2 * 8030261248);
  }
}

// Rank

/// 40 billion parameters are 80 GB, which a card of 81,559 MiB holds; what it keeps aside is counted apart.
TEST(ServingBudgets, WhatACardHasIsWhatItsDriverReports) {
  ServingQuestion question =
      question_of(model::estimate("40B"), cluster::parse_cluster("1xH100-SXM", "test"));
  question.headroom = 0;
  const ServingBudget budget = serving_budgets(question, {}).front();
  EXPECT_EQ(question.cluster.usable_bytes, 85520809984);
  EXPECT_EQ(weights(budget), 80000000000);
  EXPECT_EQ(budget.outside, std::int64_t{450} << 20);
  EXPECT_EQ(budget.room,
            85520809984 - 80000000000 - budget.outside - budget.bytes[MemoryCategory::activations]);
}

/// A published size as it is written: 70 billion parameters of 2 bytes, over all stages.
TEST(ServingBudgets, AnEstimatedModelHasItsStatedSize) {
  for (const std::int64_t pp : {1, 4}) {
    std::int64_t sum = 0;
    for (const ServingBudget& budget :
         serving_budgets(question_of(model::estimate("70B"), devices_of(8, h100_bytes)), {.pp = pp})) {
      sum += weights(budget);
    }
    EXPECT_EQ(sum, 140000000000);
  }
}

TEST(ServingBudgets, CommunicatorsAndHeadroomAreLinesOfTheirOwn) {
  const ServingBudget budget = first_budget(model::preset("llama-3-70b"), {.tp = 2});
  EXPECT_EQ(budget.outside, std::int64_t{450 + 342} << 20);
  EXPECT_EQ(budget.bytes[MemoryCategory::headroom], static_cast<std::int64_t>(0.05 * 85520809984));
  EXPECT_EQ(budget.room, h100_bytes - budget.bytes.total());
}

/// tokens / measured - 1 of every row. The engine copies the input table to every tp rank, which costs 0.4 to
/// 1.0 GiB a rank that a layout with a cut vocabulary has free; ours counts communicators, which its tables
/// leave out.
TEST(ServingBudgets, MeasuredCacheCapacities) {
  std::ifstream file(NDMESH_TEST_DATA "/serving_kv_capacity.csv");
  std::string line;
  std::getline(file, line);
  double sum = 0;
  std::int64_t rows = 0;
  while (std::getline(file, line)) {
    std::istringstream fields(line);
    std::string name, device, tp, pp, tokens;
    for (std::string* field : {&name, &device, &tp, &pp, &tokens}) std::getline(fields, *field, ',');
    const model::ModelSpec model = name == "facebook/opt-66b" ? opt(9216, 64, 72) : opt(12288, 96, 96);
    ServingQuestion question =
        question_of(model, devices_of(8, static_cast<std::int64_t>(79.15 * gibi), 8), 2048);
    std::int64_t longest = no_limit;
    for (const ServingBudget& budget :
         serving_budgets(question, {.tp = std::stoll(tp), .pp = std::stoll(pp)})) {
      longest = longest_sequence(budget.cache, {}, budget.room - budget.logits_per_sequence, longest);
    }
    const double error = static_cast<double>(longest) / std::stod(tokens) - 1;
    EXPECT_LT(std::abs(error), 0.04) << line << " " << longest;
    sum += std::abs(error);
    ++rows;
  }
  ASSERT_EQ(rows, 51);
  EXPECT_LT(sum / static_cast<double>(rows), 0.012);
  RecordProperty("mape_percent", std::to_string(100 * sum / static_cast<double>(rows)));
}

}  // namespace
}  // namespace ndmesh::plan
