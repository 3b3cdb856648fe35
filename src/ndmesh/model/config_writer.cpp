#include <nlohmann/json.hpp>

#include "ndmesh/base/error.h"
#include "ndmesh/base/text.h"
#include "ndmesh/model/config.h"
#include "ndmesh/model/config_parts.h"
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

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json layer_types(const ModelSpec& spec) {
  Json types = Json::array();
  for (std::int64_t layer = 0; layer < spec.layers; ++layer) {
    types.push_back(spec.is_windowed(layer) ? "sliding_attention" : "full_attention");
  }
  return types;
}

void write_sizes(const ModelSpec& spec, const Family& family, Json& root) {
  const Family::Keys& names = family.keys;
  const auto write = [&](std::string_view key, const Json& value) { root[std::string(key)] = value; };
  write("vocab_size", spec.vocab);
  write(names.hidden, spec.hidden);
  write(names.ffn, spec.ffn);
  write(names.layers, spec.layers);
  write(names.heads, spec.heads);
  if (family.reads_kv_heads) {
    write("num_key_value_heads", spec.kv_heads);
  }
  if (family.reads_head_dim) {
    write("head_dim", spec.head_dim);
  }
  write(names.activation, activation_name(spec.activation, family));
  write(names.positions, spec.max_positions);
  write("initializer_range", spec.initializer_range);
  write(names.norm_eps, spec.norm_eps);
  write("tie_word_embeddings", spec.tied);
}

void write_rope(const ModelSpec& spec, const Family& family, Json& root) {
  root["rope_theta"] = spec.rope_theta;
  root["rope_scaling"] = rope_scaling_json(spec.rope_scaling);
  if (spec.rope_local_theta) {
    root["rope_local_base_freq"] = *spec.rope_local_theta;
  }
  if (family.reads_rotary_factor) {
    root["partial_rotary_factor"] = spec.rotary_factor;
  }
}

void write_dropout(const Family& family, Json& root) {
  if (!family.usual_dropout) {
    root["attention_dropout"] = 0.0;
    return;
  }
  for (const char* key : {"attn_pdrop", "embd_pdrop", "resid_pdrop"}) {
    root[key] = 0.0;
  }
}

void write_windows(const ModelSpec& spec, const Family& family, Json& root) {
  if (family.window == Family::Window::none) {
    return;
  }
  root["sliding_window"] = or_null(spec.sliding_window);
  if (family.window_switch) {
    root["use_sliding_window"] = spec.sliding_window.has_value();
    root["max_window_layers"] = spec.sliding_window ? 0 : spec.layers;
  }
  if (!spec.windowed.empty() || family.window == Family::Window::alternating) {
    root["layer_types"] = layer_types(spec);
  }
}

void write_scales(const ModelSpec& spec, const Family& family, Json& root) {
  if (family.query_pre_attn_scalar) {
    root["query_pre_attn_scalar"] = or_null(spec.query_pre_attn_scalar);
  }
  if (family.reads_softcaps) {
    root["attn_logit_softcapping"] = or_null(spec.attention_softcap);
    root["final_logit_softcapping"] = or_null(spec.logits_softcap);
  }
  if (family.reads_multipliers) {
    root["embedding_multiplier"] = spec.embedding_multiplier;
    root["attention_multiplier"] = spec.attention_multiplier.value_or(1.0);
    root["residual_multiplier"] = spec.residual_multiplier;
    root["logits_scaling"] = spec.logits_scaling;
  }
}

void write_biases(const ModelSpec& spec, const Family& family, Json& root) {
  if (family.reads_attention_bias) {
    root["attention_bias"] = spec.qkv_bias;
  }
  if (family.reads_mlp_bias) {
    root["mlp_bias"] = spec.mlp_bias;
  }
}

void write_tokens(const ModelSpec& spec, Json& root) {
  root["bos_token_id"] = or_null(spec.bos_token);
  root["eos_token_id"] = eos_json(spec.eos_tokens);
  root["pad_token_id"] = or_null(spec.pad_token);
  if (spec.byte_tokens) {
    root["ndmesh_tokens"] = "bytes";
  }
}

}  // namespace

std::string config_from_spec(const ModelSpec& spec, DType dtype) {
  if (const std::vector<std::string> reasons = unrunnable_reasons(spec); !reasons.empty()) {
    throw RequestError(reasons);
  }
  const Family& family = *find_family(spec.family);
  Json root = {{"architectures", Json::array({std::string(family.architecture)})},
               {"model_type", spec.family}};
  write_sizes(spec, family, root);
  if (!spec.learned_positions) {
    write_rope(spec, family, root);
  }
  write_windows(spec, family, root);
  write_biases(spec, family, root);
  write_scales(spec, family, root);
  write_dropout(family, root);
  write_tokens(spec, root);
  root["torch_dtype"] = std::string(name_of(dtype));
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
