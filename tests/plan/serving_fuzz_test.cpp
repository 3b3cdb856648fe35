#include <gtest/gtest.h>

#include "ndmesh/base/error.h"
#include "ndmesh/plan/serving/serving.h"
#include "plan/serving_models.h"
#include "support/mutations.h"

namespace ndmesh::plan {
namespace {

constexpr const char* dense = R"({"model_type": "qwen3", "vocab_size": 151936, "hidden_size": 1024,
  "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8,
  "head_dim": 128, "max_position_embeddings": 40960, "use_sliding_window": true, "sliding_window": 4096,
  "max_window_layers": 14, "tie_word_embeddings": true})";

constexpr const char* experts = R"({"model_type": "deepseek_v3", "vocab_size": 129280, "hidden_size": 7168,
  "intermediate_size": 18432, "moe_intermediate_size": 2048, "num_hidden_layers": 61,
  "num_attention_heads": 128, "num_key_value_heads": 128, "n_shared_experts": 1, "n_routed_experts": 256,
  "num_experts_per_tok": 8, "first_k_dense_replace": 3, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
  "qk_rope_head_dim": 64, "v_head_dim": 128, "max_position_embeddings": 163840})";

/// Whether the configuration is read; then its budget is an answer or a refusal, and an answer's parts are
/// sane.
bool is_answered(const std::string& config, std::uint64_t seed) {
  model::ModelSpec model;
  try {
    model = model::spec_from_config(config, "config.json");
  } catch (const RequestError&) {
    return false;
  }
  ServingQuestion question =
      question_of(model, devices_of(8, h100_bytes, 1 + static_cast<std::int64_t>(seed % 3)));
  question.keys.weights = static_cast<job::WeightFormat>(seed % 4);
  question.keys.kv_dtype = static_cast<job::KvFormat>(seed / 4 % 4);
  try {
    const ServingAnswer answer = answer_serving(question, 2);
    EXPECT_GE(answer.judged, answer.legal);
    for (const ServingPlan& plan : answer.plans) {
      EXPECT_EQ(plan.fits, plan.memory.total() <= h100_bytes);
      EXPECT_GE(plan.memory.total(), 0);
      EXPECT_GE(plan.concurrency, plan.fits ? 1 : 0);
    }
  } catch (const RequestError&) {
    return false;
  }
  return true;
}

TEST(ServingFuzz, MutatedModelsEndInAnAnswerOrARefusal) {
  for (const char* text : {dense, experts}) {
    int answered = 0;
    for (std::uint64_t seed = 0; seed < 400; ++seed) {
      answered += is_answered(testing_support::mutated(text, seed), seed) ? 1 : 0;
    }
    EXPECT_GT(answered, 20);
  }
}

}  // namespace
}  // namespace ndmesh::plan
