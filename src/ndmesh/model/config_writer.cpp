#include <nlohmann/json.hpp>

#include "ndmesh/base/error.h"
#include "ndmesh/base/text.h"
#include "ndmesh/model/config.h"
#include "ndmesh/model/family.h"

namespace ndmesh::model {
namespace {

using Json = nlohmann::ordered_json;

Json rope_scaling_json(const RopeScaling& scaling) {
  switch (scaling.kind) {
    case RopeScaling::Kind::none:
      return nullptr;
    case RopeScaling::Kind::linear:
      return {{"rope_type", "linear"}, {"factor", scaling.factor}};
    case RopeScaling::Kind::llama3:
      return {{"rope_type", "llama3"},
              {"factor", scaling.factor},
              {"low_freq_factor", scaling.low_freq_factor},
              {"high_freq_factor", scaling.high_freq_factor},
              {"original_max_position_embeddings", scaling.original_max_positions}};
  }
  return nullptr;
}

Json eos_json(const std::vector<std::int64_t>& tokens) {
  if (tokens.empty()) {
    return nullptr;
  }
  return tokens.size() == 1 ? Json(tokens.front()) : Json(tokens);
}

Json layer_types(const ModelSpec& spec) {
  Json types = Json::array();
  for (std::int64_t layer = 0; layer < spec.layers; ++layer) {
    types.push_back(spec.is_windowed(layer) ? "sliding_attention" : "full_attention");
  }
  return types;
}

void write_family_keys(const ModelSpec& spec, const Family& family, Json& root) {
  if (family.reads_attention_bias) {
    root["attention_bias"] = spec.qkv_bias;
  }
  if (family.reads_mlp_bias) {
    root["mlp_bias"] = spec.mlp_bias;
  }
  if (family.window != Family::Window::none) {
    root["sliding_window"] = spec.sliding_window ? Json(*spec.sliding_window) : Json(nullptr);
  }
  if (family.window_switch) {
    root["use_sliding_window"] = spec.sliding_window.has_value();
    root["max_window_layers"] = spec.sliding_window ? 0 : spec.layers;
  }
  if (!spec.windowed.empty()) {
    root["layer_types"] = layer_types(spec);
  }
  if (spec.byte_tokens) {
    root["ndmesh_tokens"] = "bytes";
  }
}

}  // namespace

std::string config_from_spec(const ModelSpec& spec, DType dtype) {
  if (const std::vector<std::string> reasons = unrunnable_reasons(spec); !reasons.empty()) {
    throw RequestError(reasons);
  }
  const Family* family = find_family(spec.family);
  Json root = {
      {"architectures", Json::array({std::string(family->architecture)})},
      {"model_type", spec.family},
      {"vocab_size", spec.vocab},
      {"hidden_size", spec.hidden},
      {"intermediate_size", spec.ffn},
      {"num_hidden_layers", spec.layers},
      {"num_attention_heads", spec.heads},
      {"num_key_value_heads", spec.kv_heads},
      {"head_dim", spec.head_dim},
      {"hidden_act", "silu"},
      {"max_position_embeddings", spec.max_positions},
      {"initializer_range", spec.initializer_range},
      {"rms_norm_eps", spec.norm_eps},
      {"rope_theta", spec.rope_theta},
      {"rope_scaling", rope_scaling_json(spec.rope_scaling)},
      {"attention_dropout", 0.0},
      {"tie_word_embeddings", spec.tied},
      {"bos_token_id", spec.bos_token ? Json(*spec.bos_token) : Json(nullptr)},
      {"eos_token_id", eos_json(spec.eos_tokens)},
      {"torch_dtype", std::string(name_of(dtype))},
  };
  write_family_keys(spec, *family, root);
  const std::string text = root.dump(2) + "\n";

  ModelSpec written = spec;
  written.stored_dtype = dtype;
  if (spec_from_config(text, "config.json") != written) {
    throw RequestError("the keys of family " + spec.family +
                       " cannot say what this model is (biases, norms of heads)");
  }
  return text;
}

}  // namespace ndmesh::model
