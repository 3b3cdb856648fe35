#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "ndmesh/base/error.h"
#include "ndmesh/model/config.h"
#include "ndmesh/model/family.h"
#include "support/mutations.h"

namespace ndmesh::model {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

Json small(const std::string& family = "llama") {
  return {{"model_type", family},     {"hidden_size", 64},        {"num_hidden_layers", 3},
          {"num_attention_heads", 4}, {"num_key_value_heads", 2}, {"intermediate_size", 96},
          {"vocab_size", 101},        {"head_dim", 16},           {"max_position_embeddings", 512}};
}

ModelSpec read(const Json& config) {
  return spec_from_config(config.dump(), "config.json");
}

std::vector<std::string> problems_of(const Json& config) {
  try {
    read(config);
  } catch (const RequestError& error) {
    return error.problems();
  }
  return {};
}

std::string problem_of(const Json& config) {
  const std::vector<std::string> problems = problems_of(config);
  return problems.size() == 1 ? problems.front() : std::to_string(problems.size()) + " problems";
}

std::string problem_with(Json config, const std::string& key, const Json& value) {
  config[key] = value;
  return problem_of(config);
}

/// What the configuration with this value may be planned with, but not run.
std::string not_run_with(Json config, const std::string& key, const Json& value) {
  config[key] = value;
  const std::vector<std::string> reasons = unrunnable_reasons(read(config));
  return reasons.size() == 1 ? reasons.front() : std::to_string(reasons.size()) + " reasons";
}

// Names, shapes, counts and windows as Transformers itself makes them from the same configurations
// (tests/data/README.md).
TEST(Model, AgreesWithTransformers) {
  std::ifstream file(NDMESH_TEST_DATA "/model_golden.json");
  for (const Json& golden : Json::parse(file)) {
    SCOPED_TRACE(golden["name"]);
    const ModelSpec spec = read(golden["config"]);
    EXPECT_EQ(spec.parameter_count(), golden["parameter_count"]);
    EXPECT_EQ(spec.layers, golden["layers"]);
    EXPECT_EQ(spec.norm_eps, golden["rms_norm_eps"]);
    EXPECT_EQ(spec.rope_theta, golden["rope_theta"]);
    EXPECT_EQ(spec.max_positions, golden["max_positions"]);
    EXPECT_EQ(spec.tied, golden["tied"]);
    EXPECT_EQ(spec.initializer_range, golden["initializer_range"]);
    EXPECT_EQ(spec.sliding_window ? Json(*spec.sliding_window) : Json(), golden["sliding_window"]);
    EXPECT_EQ(spec.bos_token ? Json(*spec.bos_token) : Json(), golden["bos"]);
    EXPECT_EQ(spec.eos_tokens.empty() ? Json() : Json(spec.eos_tokens.front()), golden["eos"]);
    Json shapes = Json::object();
    for (const ParameterSpec& parameter : spec.parameters()) {
      if (parameter.layer <= 0 || parameter.layer == spec.layers - 1) {
        shapes[parameter.name] = parameter.shape;
      }
    }
    EXPECT_EQ(shapes, golden["parameters"]);
  }
}

// Public models by their published sizes.
struct Published {
  const char* family;
  std::int64_t hidden, layers, heads, kv_heads, head_dim, ffn, vocab;
  bool tied;
  std::int64_t count;
};

TEST(Model, CountsPublishedModels) {
  const Published models[] = {
      {"llama", 4096, 32, 32, 8, 128, 14336, 128256, false, 8030261248},
      {"llama", 2048, 16, 32, 8, 64, 8192, 128256, true, 1235814400},
      {"llama", 4096, 32, 32, 32, 128, 11008, 32000, false, 6738415616},
      {"qwen2", 3584, 28, 28, 4, 128, 18944, 152064, false, 7615616512},
      {"qwen2", 896, 24, 14, 2, 64, 4864, 151936, true, 494032768},
      {"qwen3", 1024, 28, 16, 8, 128, 3072, 151936, true, 596049920},
      {"mistral", 5120, 40, 32, 8, 128, 14336, 131072, false, 12247782400},
      {"llama", 8192, 80, 64, 8, 128, 28672, 128256, false, 70553706496},
      {"llama", 48, 5, 6, 2, 16, 130, 257, false, 180240},
      {"llama", 48, 5, 6, 2, 16, 130, 257, true, 167904},
  };
  for (const Published& m : models) {
    const ModelSpec spec = read({{"model_type", m.family},
                                 {"hidden_size", m.hidden},
                                 {"num_hidden_layers", m.layers},
                                 {"num_attention_heads", m.heads},
                                 {"num_key_value_heads", m.kv_heads},
                                 {"head_dim", m.head_dim},
                                 {"intermediate_size", m.ffn},
                                 {"vocab_size", m.vocab},
                                 {"tie_word_embeddings", m.tied}});
    EXPECT_EQ(spec.parameter_count(), m.count);
  }
}

TEST(Model, ParametersComeInTheOrderOfTheModel) {
  const auto parameters = read(small("qwen3")).parameters();
  EXPECT_EQ(parameters.front().name, "model.embed_tokens.weight");
  EXPECT_EQ(parameters.front().layer, -1);
  EXPECT_EQ(parameters.back().role, Role::head);
  EXPECT_EQ(parameters[parameters.size() - 2].name, "model.norm.weight");
  EXPECT_EQ(name_of(Role::attention_output), "attention_output");
  EXPECT_EQ(name_of(Role::head), "head");
}

TEST(Presets, HaveThePublishedCounts) {
  const std::pair<const char*, std::int64_t> counts[] = {
      {"llama-28m", 27795968},         {"llama-1b", 1100048384},   {"qwen3-0.6b", 596049920},
      {"llama-3.2-1b", 1235814400},    {"llama-3-8b", 8030261248}, {"llama-3-70b", 70553706496},
      {"llama-3.1-405b", 405853388800}};
  for (const auto& [name, count] : counts) {
    EXPECT_EQ(preset(name).parameter_count(), count) << name;
  }
  EXPECT_NEAR(static_cast<double>(preset("llama-1m").parameter_count()), 1e6, 1.5e5);
  EXPECT_NEAR(static_cast<double>(preset("llama-bytes-5m").parameter_count()), 5e6, 5e5);
  EXPECT_NEAR(static_cast<double>(preset("llama-182m").parameter_count()), 182e6, 5e6);
  EXPECT_TRUE(preset("llama-1m").byte_tokens);
  EXPECT_FALSE(preset("llama-28m").byte_tokens);
}

TEST(Presets, UnknownOneIsRefusedWithTheNearest) {
  try {
    preset("llama-38b");
    FAIL();
  } catch (const RequestError& error) {
    EXPECT_THAT(error.what(), HasSubstr("did you mean llama-3-8b?"));
  }
}

TEST(Presets, AreWrittenAndReadBack) {
  for (const std::string& name : preset_names()) {
    ModelSpec spec = preset(name);
    if (!unrunnable_reasons(spec).empty()) continue;  // only planned: the writer refuses them
    spec.stored_dtype = DType::bfloat16;
    EXPECT_EQ(spec_from_config(config_from_spec(spec, DType::bfloat16), name), spec) << name;
  }
}

TEST(Config, HeadDimAndKvHeads) {
  Json config = {{"model_type", "llama"}, {"hidden_size", 4096}, {"num_attention_heads", 32}};
  config["head_dim"] = nullptr;
  config["num_key_value_heads"] = nullptr;
  EXPECT_EQ(read(config).head_dim, 128);
  EXPECT_EQ(read(config).kv_heads, 32);
  config.erase("head_dim");
  config.erase("num_key_value_heads");
  EXPECT_EQ(read(config).head_dim, 128);
  EXPECT_EQ(read(config).kv_heads, 32);

  Json qwen = {{"model_type", "qwen3"},
               {"hidden_size", 1024},
               {"num_attention_heads", 16},
               {"num_key_value_heads", 8}};
  EXPECT_EQ(read(qwen).head_dim, 128);
  qwen["head_dim"] = nullptr;
  EXPECT_EQ(read(qwen).head_dim, 64);

  Json odd = {{"model_type", "llama"},
              {"hidden_size", 1792},
              {"num_attention_heads", 24},
              {"num_key_value_heads", 8}};
  EXPECT_THAT(problem_of(odd), HasSubstr("hidden_size 1792 is no multiple of num_attention_heads 24"));
  odd["head_dim"] = 128;
  EXPECT_EQ(read(odd).parameters()[2].shape, (std::vector<std::int64_t>{3072, 1792}));
  EXPECT_EQ(read(odd).parameters()[3].shape, (std::vector<std::int64_t>{1024, 1792}));
}

TEST(Config, HeadsMustBeMultiplesOfKvHeads) {
  Json config = small();
  config["num_attention_heads"] = 14;
  config["num_key_value_heads"] = 4;
  EXPECT_THAT(problem_of(config), HasSubstr("14 is no multiple of num_key_value_heads 4"));
  config["num_attention_heads"] = 32;
  EXPECT_THAT(problem_with(config, "num_key_value_heads", 5),
              HasSubstr("32 is no multiple of num_key_value_heads 5"));
  EXPECT_THAT(problem_with(config, "num_key_value_heads", 0), HasSubstr("num_key_value_heads is 0; allowed"));
  EXPECT_THAT(problem_with(config, "head_dim", 0), HasSubstr("head_dim is 0; allowed"));
  EXPECT_THAT(problem_with(config, "head_dim", 15), HasSubstr("15 is odd"));
}

TEST(Config, RopeScalingInAllItsSpellings) {
  const auto scaling = [](const Json& value) {
    Json config = small();
    config["rope_scaling"] = value;
    return read(config).rope_scaling;
  };
  EXPECT_EQ(scaling(nullptr).kind, RopeScaling::Kind::none);
  EXPECT_EQ(scaling({{"rope_type", "default"}}).kind, RopeScaling::Kind::none);
  const Json linear = {{"type", "linear"}, {"factor", 4.0}};
  EXPECT_EQ(scaling(linear).kind, RopeScaling::Kind::linear);
  EXPECT_EQ(scaling(linear).factor, 4.0);
  const Json llama3 = {{"rope_type", "llama3"},
                       {"factor", 8.0},
                       {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0},
                       {"original_max_position_embeddings", 8192}};
  EXPECT_EQ(scaling(llama3), (RopeScaling{RopeScaling::Kind::llama3, 8.0, 1.0, 4.0, 8192}));
  Json config = small();
  config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 500000.0}};
  EXPECT_EQ(read(config).rope_theta, 500000.0);
  EXPECT_EQ(read(config).rope_scaling.kind, RopeScaling::Kind::none);
}

TEST(Config, RefusesRopeScalingThatIsNotBuiltOrUnclear) {
  const auto problem = [](const Json& value) { return problem_with(small(), "rope_scaling", value); };
  EXPECT_THAT(problem({{"rope_type", "ntk"}, {"factor", 4.0}}),
              HasSubstr("\"ntk\" is not built; allowed: default, linear, llama3; for planning also dynamic"));
  EXPECT_THAT(
      not_run_with(small(), "rope_scaling",
                   {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32768}}),
      HasSubstr("\"yarn\" is not built; allowed: default, linear, llama3"));
  EXPECT_THAT(problem({{"type", "linear"}, {"rope_type", "llama3"}, {"factor", 2.0}}),
              HasSubstr("contradicts"));
  EXPECT_THAT(problem({{"factor", 2.0}}), HasSubstr("rope_type: is missing"));
  EXPECT_THAT(problem({{"type", "linear"}}), HasSubstr("factor: is missing"));
  EXPECT_THAT(problem({{"type", "linear"}, {"factor", 0.5}}), HasSubstr("factor is 0.5; allowed: 1 or more"));
  EXPECT_THAT(problem({{"type", "linear"}, {"facto", 2.0}, {"factor", 2.0}}),
              HasSubstr("did you mean factor?"));
  EXPECT_THAT(problem("linear"), HasSubstr("allowed: an object or null"));
  EXPECT_THAT(problem({{"type", 3}, {"factor", 2.0}}), HasSubstr("2 problems"));
  Json both = small();
  both["rope_scaling"] = {{"type", "linear"}, {"factor", 4.0}};
  both["rope_parameters"] = {{"rope_type", "default"}};
  EXPECT_THAT(problem_of(both), HasSubstr("beside rope_parameters"));
  Json theta = small();
  theta["rope_theta"] = 10000.0;
  theta["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 500000.0}};
  EXPECT_THAT(problem_of(theta), HasSubstr("differs from rope_theta"));
  EXPECT_THAT(not_run_with(small(), "partial_rotary_factor", 0.5), HasSubstr("is not built"));
}

TEST(Config, StoredDtypeIsAHint) {
  const auto dtype = [](const std::string& key, const std::string& name) {
    Json config = small();
    config[key] = name;
    return read(config).stored_dtype;
  };
  EXPECT_EQ(dtype("torch_dtype", "bfloat16"), DType::bfloat16);
  EXPECT_EQ(dtype("dtype", "torch.bfloat16"), DType::bfloat16);
  EXPECT_EQ(dtype("dtype", "auto"), std::nullopt);
  EXPECT_EQ(read(small()).stored_dtype, std::nullopt);
  Json both = small();
  both["dtype"] = "bfloat16";
  both["torch_dtype"] = "torch.bfloat16";
  EXPECT_EQ(read(both).stored_dtype, DType::bfloat16);
  EXPECT_THAT(problem_with(both, "torch_dtype", "float32"), HasSubstr("contradicts dtype"));
  EXPECT_THAT(problem_with(small(), "dtype", "float8_weird"),
              HasSubstr("dtype is \"float8_weird\"; allowed: bfloat16"));
  EXPECT_THAT(problem_with(small(), "torch_dtype", "int8"), HasSubstr("torch_dtype is \"int8\""));
}

TEST(Config, TiedIsWhatTheFamilySaysUnlessGiven) {
  for (const std::string& family : supported_families()) {
    Json config = small(family);
    config["num_experts_per_tok"] = 2;
    const bool tied = family == "gpt2" || family == "gemma2" || family == "gemma3_text";
    EXPECT_EQ(read(config).tied, tied) << family;
    config["tie_word_embeddings"] = !tied;
    EXPECT_EQ(read(config).tied, !tied) << family;
  }
  Json config = small();
  config["text_config"] = {{"tie_word_embeddings", true}};
  EXPECT_TRUE(read(config).tied);
  EXPECT_THAT(problem_with(config, "tie_word_embeddings", false), HasSubstr("contradicts"));
  EXPECT_THAT(problem_with(small(), "tie_word_embeddings", "yes"), HasSubstr("allowed: true or false"));
}

TEST(Config, WindowsMayDifferByLayer) {
  Json config = small("qwen3");
  config["use_sliding_window"] = true;
  config["sliding_window"] = 16;
  config["max_window_layers"] = 1;
  EXPECT_EQ(read(config).windowed, (std::vector<bool>{false, true, true}));
  config["layer_types"] = {"full_attention", "sliding_attention", "full_attention"};
  EXPECT_EQ(read(config).windowed, (std::vector<bool>{false, true, false}));
  EXPECT_EQ(read(config).sliding_window, 16);
  EXPECT_TRUE(unrunnable_reasons(read(config)).empty());  // a sequence may be shorter than the window
  EXPECT_THAT(problem_with(config, "layer_types", {"full_attention"}), HasSubstr("a list of 3 names"));
  EXPECT_THAT(problem_with(config, "layer_types", {"full_attention", "chunked_attention", "full_attention"}),
              HasSubstr("allowed: full_attention, sliding_attention"));
  Json off = small("qwen2");
  off["layer_types"] = {"sliding_attention", "sliding_attention", "sliding_attention"};
  EXPECT_THAT(problem_of(off), HasSubstr("no sliding window is in force"));
  Json mistral = small("mistral");
  mistral["layer_types"] = {"full_attention", "sliding_attention", "full_attention"};
  EXPECT_THAT(problem_of(mistral), HasSubstr("mistral uses sliding_window in every layer"));
}

TEST(Config, RefusesWhatIsNotBuilt) {
  EXPECT_THAT(problem_with(small(), "model_type", "gemma"),
              HasSubstr("model_type \"gemma\" is not built; allowed: llama, "
                        "mistral, qwen2, qwen3, gemma2, gemma3_text, gpt2, gpt_neox, mixtral"));
  EXPECT_THAT(problem_with(small(), "num_local_experts", 8),
              HasSubstr("num_local_experts is 8; allowed: none, as family llama is dense"));
  EXPECT_THAT(problem_with(small(), "text_config", {{"num_experts", 128}}), HasSubstr("num_experts is 128"));
  EXPECT_THAT(problem_with(small(), "text_config", 3), HasSubstr("text_config must be an object"));
  EXPECT_THAT(problem_with(small(), "attention_dropout", "a lot"),
              HasSubstr("attention_dropout is \"a lot\""));
  Json nameless = small();
  nameless.erase("model_type");
  EXPECT_THAT(problem_of(nameless), HasSubstr("model_type is missing"));
}

TEST(Config, WhatIsOnlyPlannedIsReadAndNamed) {
  EXPECT_TRUE(unrunnable_reasons(read(small())).empty());
  EXPECT_THAT(not_run_with(small(), "hidden_act", "gelu"),
              HasSubstr("hidden_act: \"gelu\" is not built; allowed: silu, gelu_pytorch_tanh"));
  EXPECT_THAT(not_run_with(small(), "attention_dropout", 0.1),
              HasSubstr("attention_dropout: is 0.1; allowed: 0"));
  EXPECT_THAT(not_run_with(small(), "quantization_config", {{"bits", 4}}), HasSubstr("quantized weights"));
  EXPECT_THAT(
      not_run_with(small("mixtral"), "tie_word_embeddings", false),
      HasSubstr("family mixtral is planned, not run; not built yet for running: routed experts; allowed: "
                "llama, mistral, qwen2, qwen3, gemma2, gemma3_text, gpt2, phi3, olmo2, granite"));
  EXPECT_THAT(not_run_with(small("gpt_neox"), "tie_word_embeddings", false),
              HasSubstr("query, key and value that are fused by head"));
  EXPECT_THAT(not_run_with(small("gpt2"), "scale_attn_by_inverse_layer_idx", true),
              HasSubstr("scale_attn_by_inverse_layer_idx: true is not built; allowed: false"));
  EXPECT_THAT(not_run_with(small("gemma3_text"), "use_bidirectional_attention", true),
              HasSubstr("use_bidirectional_attention: true is not built"));
  EXPECT_THAT(not_run_with(small("phi3"), "resid_pdrop", 0.1), HasSubstr("resid_pdrop: is 0.1; allowed: 0"));
  EXPECT_THAT(not_run_with(small("phi3"), "rope_scaling",
                           {{"type", "longrope"}, {"short_factor", {1.0}}, {"long_factor", {1.0}}}),
              HasSubstr("\"longrope\" is not built"));
}

TEST(Config, ByteModels) {
  EXPECT_FALSE(read(small()).byte_tokens);
  Json config = small();
  config["vocab_size"] = 256;
  config["ndmesh_tokens"] = "bytes";
  EXPECT_TRUE(read(config).byte_tokens);
  EXPECT_THAT(problem_with(config, "vocab_size", 255), HasSubstr("255 is too small"));
  EXPECT_THAT(problem_with(config, "ndmesh_tokens", "words"),
              HasSubstr("ndmesh_tokens is \"words\"; allowed: bytes"));
}

TEST(Config, EndOfTextTokens) {
  Json config = small();
  config["eos_token_id"] = {1, 2, 3};
  EXPECT_EQ(read(config).eos_tokens, (std::vector<std::int64_t>{1, 2, 3}));
  config["eos_token_id"] = nullptr;
  EXPECT_TRUE(read(config).eos_tokens.empty());
  EXPECT_THAT(problem_with(config, "eos_token_id", "end"), HasSubstr("allowed: a token number"));
  EXPECT_THAT(problem_with(config, "eos_token_id", {{1, 2}, 3}), HasSubstr("allowed: a token number"));
}

TEST(Config, RefusesHostileSizes) {
  const Json hostile[] = {
      nullptr,       0, -1, "64", 64.0, 1e300, true, 9223372036854775808ULL, INT64_MIN, Json::array(),
      Json::object()};
  for (const char* key : {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                          "num_attention_heads", "max_position_embeddings"}) {
    for (const Json& value : hostile) {
      EXPECT_FALSE(problems_of([&] {
                     Json config = small();
                     config[key] = value;
                     return config;
                   }())
                       .empty())
          << key << " " << value;
    }
  }
  for (const char* key : {"rms_norm_eps", "rope_theta", "initializer_range"}) {
    for (const Json& value : {Json(nullptr), Json("1e-5"), Json(-1.0), Json(true), Json(1e30)}) {
      EXPECT_THAT(problem_with(small(), key, value), HasSubstr("allowed: a number above 0"))
          << key << " " << value;
    }
  }
}

TEST(Config, ListsAllProblemsAtOnce) {
  Json config = small();
  config["vocab_size"] = 0;
  config["hidden_act"] = 5;
  config["num_experts"] = 4;
  config["rope_scaling"] = {{"type", "ntk"}};
  const std::vector<std::string> problems = problems_of(config);
  EXPECT_EQ(problems.size(), 4U);
  for (const std::string& problem : problems) {
    EXPECT_THAT(problem, testing::StartsWith("config.json: "));
  }
}

TEST(Config, LimitsTheCount) {
  Json config = {{"model_type", "llama"},          {"hidden_size", 1 << 20}, {"num_hidden_layers", 1 << 14},
                 {"num_attention_heads", 1 << 14}, {"head_dim", 1 << 12},    {"intermediate_size", 1 << 24},
                 {"vocab_size", 2147483647}};
  EXPECT_THAT(problem_of(config), HasSubstr("at most 1000000000000000"));
}

TEST(Config, RefusesWhatIsNoObject) {
  EXPECT_THROW(spec_from_config("[]", "config.json"), RequestError);
  EXPECT_THROW(spec_from_config("", "config.json"), RequestError);
  EXPECT_THROW(
      spec_from_config(R"({"model_type": "llama", "vocab_size": 5, "vocab_size": 6})", "config.json"),
      RequestError);
  EXPECT_THROW(spec_from_folder("no/such/folder"), RequestError);
}

// Nearly right input ends in a model or a RequestError, never in anything else.
TEST(Config, MutationsAreReadOrRefused) {
  Json config = small("qwen3");
  config["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", 8.0},
                            {"low_freq_factor", 1.0},
                            {"high_freq_factor", 4.0},
                            {"original_max_position_embeddings", 8192}};
  config["layer_types"] = {"full_attention", "full_attention", "full_attention"};
  const std::string text = config.dump(1);
  int accepted = 0;
  for (std::uint64_t seed = 0; seed < 5000; ++seed) {
    try {
      const ModelSpec spec = spec_from_config(testing_support::mutated(text, seed), "config.json");
      EXPECT_GT(spec.parameter_count(), 0);
      ++accepted;
    } catch (const RequestError&) {
    }
  }
  EXPECT_GT(accepted, 50);
  EXPECT_LT(accepted, 4000);
}

TEST(ConfigWriter, EveryFamilyIsReadBackToTheSameModel) {
  for (const std::string& family : runnable_families()) {
    Json config = small(family);
    config["tie_word_embeddings"] = true;
    config["attention_bias"] = true;
    config["mlp_bias"] = true;
    config["use_sliding_window"] = true;
    config["sliding_window"] = 64;
    config["max_window_layers"] = 0;
    config["rope_scaling"] = {{"type", "linear"}, {"factor", 4.0}};
    config["eos_token_id"] = {7, 8};
    config["dtype"] = "float32";
    const ModelSpec spec = read(config);
    const std::string text = config_from_spec(spec, DType::float32);
    EXPECT_EQ(spec_from_config(text, "config.json"), spec) << text;
  }
}

TEST(ConfigWriter, WindowsOfSomeLayersAreKept) {
  Json config = small("qwen2");
  config["use_sliding_window"] = true;
  config["max_window_layers"] = 2;
  config["dtype"] = "float32";
  const ModelSpec spec = read(config);
  EXPECT_EQ(spec_from_config(config_from_spec(spec, DType::float32), "config.json"), spec);
}

TEST(ConfigWriter, RefusesWhatTheFamilyCannotSay) {
  ModelSpec spec = read(small());
  spec.qkv_bias = true;  // without a bias of o_proj: llama has one key for both
  EXPECT_THROW(config_from_spec(spec, DType::float32), RequestError);
  spec.family = "gpt2";  // it has no rotary positions
  EXPECT_THROW(config_from_spec(spec, DType::float32), RequestError);
  spec = read(small());
  spec.planned_only = {"hidden_act: \"gelu\" is not built"};
  EXPECT_THROW(config_from_spec(spec, DType::float32), RequestError);
}

}  // namespace
}  // namespace ndmesh::model
