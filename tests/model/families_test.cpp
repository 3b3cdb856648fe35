#include <gmock/gmock.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "ndmesh/base/error.h"
#include "ndmesh/model/config.h"
#include "support/mutations.h"

namespace ndmesh::model {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

ModelSpec read(const Json& config) {
  return spec_from_config(config.dump(), "config.json");
}

Json data(const std::string& name) {
  std::ifstream file(std::string(NDMESH_TEST_DATA) + "/model_families/" + name + ".json");
  return Json::parse(file);
}

std::vector<std::string> problems_of(const Json& config) {
  try {
    read(config);
  } catch (const RequestError& error) {
    return error.problems();
  }
  return {};
}

std::string problem_with(Json config, const std::string& key, const Json& value) {
  config[key] = value;
  const std::vector<std::string> problems = problems_of(config);
  return problems.size() == 1 ? problems.front() : std::to_string(problems.size()) + " problems";
}

Json small_config(const std::string& family) {
  return data(family).front()["config"];
}

// Names and shapes as Transformers itself makes them from the same configurations (tests/data/README.md).
TEST(Families, HaveTheParametersOfTransformers) {
  for (const std::string& family : supported_families()) {
    for (const Json& model : data(family)) {
      SCOPED_TRACE(model["config"].dump());
      const ModelSpec spec = read(model["config"]);
      Json shapes = Json::object();
      std::int64_t count = 0;
      for (const ParameterSpec& parameter : spec.parameters()) {
        EXPECT_FALSE(shapes.contains(parameter.name)) << parameter.name;
        shapes[parameter.name] = parameter.shape;
        count += parameter.elements();
      }
      EXPECT_EQ(shapes, model["parameters"]);
      EXPECT_EQ(spec.parameter_count(), count);
    }
  }
}

// Published shapes, counted by Transformers: Llama 2 and 3, Qwen2.5 and 3, Gemma 2 and 3, GPT-2, GPT-NeoX,
// Mixtral, DeepSeek V2 and V3, gpt-oss, ...
TEST(Families, CountPublishedModels) {
  for (const Json& model : data("totals")) {
    const ModelSpec spec = read(model["config"]);
    EXPECT_EQ(spec.parameter_count(), model["parameters"].get<std::int64_t>()) << model["name"];
    EXPECT_EQ(approximate_parameter_count(spec), static_cast<double>(spec.parameter_count()));
  }
}

Json published(const std::string& name) {
  for (const Json& model : data("totals")) {
    if (model["name"] == name) return model["config"];
  }
  throw std::runtime_error("no model " + name);
}

// Memory follows all experts, work those that a token meets. Published active counts: Mixtral 12.9B,
// Qwen3-30B-A3B 3.3B, DeepSeek-V3 37B (it leaves out the input table, 0.9B of 37.6B less the head's),
// gpt-oss-20b 3.6B and -120b 5.1B (which leave out the input table).
TEST(Families, CountWhatATokenMeets) {
  EXPECT_EQ(read(published("Mixtral-8x7B")).active_parameter_count(), 12879925248);
  EXPECT_EQ(read(published("Qwen3-30B-A3B")).active_parameter_count(), 3353032704);
  EXPECT_EQ(read(published("Llama-3-8B")).active_parameter_count(), 8030261248);
  const ModelSpec tiny = read(Json::parse(R"({"model_type":"mixtral","hidden_size":32,"num_hidden_layers":3,
      "num_attention_heads":4,"num_key_value_heads":2,"intermediate_size":24,"num_local_experts":8,
      "num_experts_per_tok":2,"vocab_size":101,"tie_word_embeddings":false})"));
  EXPECT_EQ(tiny.parameter_count(), 71968);
  EXPECT_EQ(tiny.active_parameter_count(), 30496);
  const auto active = [](const std::string& name) {
    const ModelSpec spec = read(published(name));
    return static_cast<double>(spec.active_parameter_count() - spec.vocab * spec.hidden);
  };
  EXPECT_NEAR(active("DeepSeek-V3"), 37e9, 0.5e9);
  EXPECT_NEAR(active("gpt-oss-20b"), 3.6e9, 0.05e9);
  EXPECT_NEAR(active("gpt-oss-120b"), 5.1e9, 0.05e9);
}

TEST(Families, LayersOnceAgreeWithEveryParameter) {
  for (const std::string& family : supported_families()) {
    const ModelSpec spec = read(small_config(family));
    std::map<std::int64_t, std::int64_t> by_layer;
    for (const ParameterSpec& parameter : spec.parameters()) {
      by_layer[parameter.layer] += parameter.elements();
    }
    for (std::int64_t layer = 0; layer < spec.total_layers(); ++layer) {
      std::int64_t count = 0;
      for (const LayerParameter& parameter : spec.layer_parameters(layer)) count += parameter.elements();
      EXPECT_EQ(count, by_layer[layer]) << family << " layer " << layer;
    }
    std::int64_t ends = 0;
    for (const ParameterSpec& parameter : spec.end_parameters()) ends += parameter.elements();
    EXPECT_EQ(ends, by_layer[-1]) << family;
  }
}

// A published list of the planner: one entry a parameter of 61 layers with 256 experts each.
TEST(Families, ExpertsAreNamedOneByOne) {
  const auto parameters = preset("deepseek-v3").parameters();
  std::set<std::string> names;
  for (const ParameterSpec& parameter : parameters) names.insert(parameter.name);
  EXPECT_EQ(names.size(), parameters.size());
  EXPECT_EQ(names.count("model.layers.60.mlp.experts.255.down_proj.weight"), 1U);
  EXPECT_EQ(names.count("model.layers.2.mlp.experts.0.down_proj.weight"), 0U);
  EXPECT_EQ(preset("deepseek-v3").layer_parameters(60).size(), 17U);
}

// The layer that DeepSeek-V3's checkpoint has behind the 61st: 11.5B parameters of its own beside the shared
// table and head (its README), by hand: a MoE layer, two norms and the projection before it, a norm behind.
TEST(Families, MultiTokenPredictionLayers) {
  Json config = published("DeepSeek-V3");
  const ModelSpec plain = read(config);
  config["num_nextn_predict_layers"] = 1;
  const ModelSpec spec = read(config);
  EXPECT_EQ(spec.total_layers(), 62);
  EXPECT_TRUE(spec.is_moe(61));
  EXPECT_TRUE(spec.layer_kind(61).mtp);
  std::int64_t layer = 0;
  for (const LayerParameter& parameter : plain.layer_parameters(60)) layer += parameter.elements();
  EXPECT_EQ(spec.parameter_count() - plain.parameter_count(), layer + 3 * 7168 + 2 * 7168 * 7168);
  EXPECT_NEAR(static_cast<double>(spec.parameter_count() - plain.parameter_count()), 11.5e9, 0.15e9);
  std::set<std::string> names;
  for (const ParameterSpec& parameter : spec.parameters()) names.insert(parameter.name);
  for (const char* name : {"enorm.weight", "hnorm.weight", "eh_proj.weight", "shared_head.norm.weight",
                           "mlp.experts.255.up_proj.weight", "self_attn.q_a_proj.weight"}) {
    EXPECT_EQ(names.count("model.layers.61." + std::string(name)), 1U) << name;
  }
}

TEST(Families, WindowsAndCaches) {
  const ModelSpec gemma2 = read({{"model_type", "gemma2"}});
  EXPECT_EQ(gemma2.sliding_window, 4096);
  EXPECT_TRUE(gemma2.is_windowed(0));
  EXPECT_FALSE(gemma2.is_windowed(1));
  const ModelSpec gemma3 = read({{"model_type", "gemma3_text"}});
  EXPECT_TRUE(gemma3.is_windowed(4));
  EXPECT_FALSE(gemma3.is_windowed(5));
  const ModelSpec gpt_oss = preset("mixtral-8x7b");
  EXPECT_FALSE(gpt_oss.is_windowed(0));
  const ModelSpec oss = read({{"model_type", "gpt_oss"}});
  EXPECT_EQ(oss.sliding_window, 128);
  EXPECT_TRUE(oss.is_windowed(0));
  EXPECT_FALSE(oss.is_windowed(1));
  EXPECT_EQ(oss.kv_elements_per_token(), 2 * 8 * 64);
  EXPECT_EQ(preset("deepseek-v3").kv_elements_per_token(), 512 + 64);
  EXPECT_EQ(preset("deepseek-v3").query_width(), 128 * 192);
  EXPECT_EQ(preset("deepseek-v3").value_width(), 128 * 128);
}

TEST(Families, Scales) {
  const ModelSpec gemma2 = read({{"model_type", "gemma2"}});
  EXPECT_EQ(gemma2.attention_softcap, 50.0);
  EXPECT_EQ(gemma2.logits_softcap, 30.0);
  EXPECT_EQ(gemma2.attention_scale(), 1.0 / 16);
  EXPECT_TRUE(gemma2.scaled_embedding && gemma2.unit_offset_norm);
  EXPECT_EQ(gemma2.activation, Activation::gelu_tanh);
  const ModelSpec uncapped = read({{"model_type", "gemma2"}, {"attn_logit_softcapping", nullptr}});
  EXPECT_EQ(uncapped.attention_softcap, std::nullopt);
  const ModelSpec gemma3 = read({{"model_type", "gemma3_text"}});
  EXPECT_EQ(gemma3.attention_softcap, std::nullopt);
  EXPECT_EQ(gemma3.rope_theta, 1e6);
  EXPECT_EQ(gemma3.rope_local_theta, 1e4);
  const ModelSpec granite = read({{"model_type", "granite"}, {"attention_multiplier", 0.015625}});
  EXPECT_EQ(granite.attention_scale(), 0.015625);
  EXPECT_EQ(granite.embedding_multiplier, 1.0);
  EXPECT_EQ(read({{"model_type", "llama"}}).attention_scale(), 1 / std::sqrt(128.0));
  EXPECT_EQ(read({{"model_type", "phi3"}, {"partial_rotary_factor", 0.75}}).rotary_dim(), 72);
}

TEST(Families, RefuseScalesThatCannotBe) {
  EXPECT_THAT(problem_with({{"model_type", "granite"}}, "residual_multiplier", 0),
              HasSubstr("residual_multiplier is 0"));
  EXPECT_THAT(problem_with({{"model_type", "gemma2"}}, "final_logit_softcapping", -1),
              HasSubstr("final_logit_softcapping is -1"));
  EXPECT_THAT(problem_with({{"model_type", "gemma2"}}, "query_pre_attn_scalar", "256"),
              HasSubstr("query_pre_attn_scalar is \"256\""));
  EXPECT_THAT(problem_with({{"model_type", "gemma3_text"}}, "rope_local_base_freq", 0),
              HasSubstr("rope_local_base_freq is 0"));
  EXPECT_THAT(problem_with({{"model_type", "gemma3_text"}}, "sliding_window", nullptr),
              HasSubstr("sliding_window: is null, but layers have sliding_attention"));
  EXPECT_THAT(problem_with({{"model_type", "phi3"}}, "partial_rotary_factor", 0.35),
              HasSubstr("0.35 of head size 96 is 33 numbers; allowed: an even number"));
}

TEST(Families, TextConfigOfMultiModalModels) {
  Json nested = small_config("qwen3_moe");
  nested["num_experts"] = 128;
  const Json config = {
      {"model_type", "some_vision_model"}, {"text_config", nested}, {"torch_dtype", "bfloat16"}};
  ASSERT_TRUE(read(config).experts);
  EXPECT_EQ(read(config).experts->count, 128);
  EXPECT_EQ(read(config).stored_dtype, DType::bfloat16);
  // gemma-3-4b-it names only what differs from its family; 3.88B of text, as its model card says.
  const Json gemma = {{"model_type", "gemma3"},
                      {"text_config",
                       {{"hidden_size", 2560},
                        {"intermediate_size", 10240},
                        {"num_hidden_layers", 34},
                        {"rope_scaling", {{"factor", 8.0}, {"rope_type", "linear"}}},
                        {"sliding_window", 1024}}},
                      {"vision_config", {{"hidden_size", 1152}}}};
  EXPECT_EQ(read(gemma).family, "gemma3_text");
  EXPECT_EQ(read(gemma).parameter_count(), 3880263168);
  EXPECT_THAT(problem_with(config, "text_config", {{"model_type", "weird"}}),
              HasSubstr("model_type \"weird\" is not built"));
}

TEST(Families, RefuseExpertsThatCannotBe) {
  const Json mixtral = small_config("mixtral");
  EXPECT_THAT(problem_with(mixtral, "num_experts_per_tok", 4), HasSubstr("num_experts_per_tok is 4"));
  EXPECT_THAT(problem_with(mixtral, "num_local_experts", 0), HasSubstr("num_local_experts is 0"));
  EXPECT_THAT(problem_with(mixtral, "num_local_experts", 1), HasSubstr("is above the 1 experts"));
  const Json qwen = small_config("qwen3_moe");
  EXPECT_THAT(problem_with(qwen, "mlp_only_layers", {0, 3}), HasSubstr("allowed: a list of layers, 0 to 2"));
  EXPECT_THAT(problem_with(qwen, "mlp_only_layers", "none"), HasSubstr("allowed: a list of layers"));
  EXPECT_THAT(problem_with(qwen, "decoder_sparse_step", 0), HasSubstr("decoder_sparse_step is 0"));
  Json deepseek = small_config("deepseek_v2");
  EXPECT_THAT(problem_with(deepseek, "moe_layer_freq", 2), HasSubstr("moe_layer_freq is 2; allowed: 1"));
  EXPECT_THAT(problem_with(deepseek, "qk_rope_head_dim", 3), HasSubstr("qk_rope_head_dim is 3"));
  EXPECT_THAT(problem_with(deepseek, "kv_lora_rank", 0), HasSubstr("kv_lora_rank is 0"));
  EXPECT_THAT(problem_with(deepseek, "num_nextn_predict_layers", 65), HasSubstr("num_nextn_predict_layers"));
  deepseek.erase("num_experts_per_tok");
  EXPECT_THAT(problem_with(deepseek, "v_head_dim", 14), HasSubstr("num_experts_per_tok: is missing"));
}

TEST(Families, KeysOfGpt2InBothSpellings) {
  const Json own = {
      {"model_type", "gpt2"}, {"n_embd", 48}, {"n_layer", 2}, {"n_head", 6}, {"n_positions", 64}};
  const Json general = {{"model_type", "gpt2"},
                        {"hidden_size", 48},
                        {"num_hidden_layers", 2},
                        {"num_attention_heads", 6},
                        {"max_position_embeddings", 64}};
  EXPECT_EQ(read(own), read(general));
  EXPECT_THAT(problem_with(own, "n_embd", 50), HasSubstr("no multiple"));
  EXPECT_THAT(problem_with(own, "n_layer", 0), HasSubstr("n_layer is 0"));
}

// The largest sizes that the keys allow, beyond 64 bits together.
TEST(Families, LimitTheCount) {
  const Json config = {
      {"model_type", "qwen3_moe"}, {"hidden_size", 1 << 20}, {"num_hidden_layers", 1 << 14},
      {"num_experts", 1 << 16},    {"head_dim", 128},        {"moe_intermediate_size", 1 << 24}};
  EXPECT_THAT(problem_with(config, "vocab_size", 100), HasSubstr("at most 1000000000000000"));
}

// Nearly right input ends in a model or a RequestError, never in anything else.
TEST(Families, MutationsAreReadOrRefused) {
  int accepted = 0;
  for (const std::string& family : supported_families()) {
    const std::string text = small_config(family).dump(1);
    for (std::uint64_t seed = 0; seed < 300; ++seed) {
      try {
        const ModelSpec spec = spec_from_config(testing_support::mutated(text, seed), "config.json");
        EXPECT_GT(spec.parameter_count(), 0);
        EXPECT_GE(spec.parameter_count(), spec.active_parameter_count());
        ++accepted;
      } catch (const RequestError&) {
      }
    }
  }
  EXPECT_GT(accepted, 100);
}

}  // namespace
}  // namespace ndmesh::model
