#include <fmt/format.h>

#include <utility>

#include "ndmesh/base/log.h"
#include "ndmesh/base/text.h"
#include "ndmesh/model/config_parts.h"

namespace ndmesh::model {
namespace {

constexpr NumberRange scale_range = {0, 1e9};

std::optional<Activation> activation_from_name(std::string_view name) {
  if (name == "silu" || name == "swish") {
    return Activation::silu;
  }
  if (name == "gelu_pytorch_tanh" || name == "gelu_new") {  // two implementations of one function
    return Activation::gelu_tanh;
  }
  return std::nullopt;
}

void read_activation(ConfigParts& config) {
  const std::string key(config.family.keys.activation);
  const std::string name = config.keys.text(key, std::string(config.family.activation));
  if (const auto activation = activation_from_name(name)) {
    config.spec.activation = *activation;
  } else {
    config.only_planned(key, shown(name) + " is not built; allowed: silu, gelu_pytorch_tanh, gelu_new");
  }
}

/// A number or null, which is none; absent: what the family takes.
std::optional<double> optional_number(KeyReader& keys, const std::string& key, std::optional<double> usual) {
  if (!keys.present(key)) {
    return usual;
  }
  return keys.has(key) ? std::optional(keys.number(key, 1.0, scale_range)) : std::nullopt;
}

/// Switches that change what is computed and are not built in the other position.
void read_switches_of_attention(ConfigParts& config) {
  for (const auto& [key, usual] : {std::pair{"scale_attn_weights", true},
                                   {"scale_attn_by_inverse_layer_idx", false},
                                   {"add_cross_attention", false},
                                   {"use_bidirectional_attention", false}}) {
    if (config.keys.has(key) && config.keys.boolean(key, usual) != usual) {
      config.only_planned(key, fmt::format("{} is not built; allowed: {}", !usual, usual));
    }
  }
}

}  // namespace

std::string activation_name(Activation activation, const Family& family) {
  if (activation_from_name(family.activation) == activation) {
    return std::string(family.activation);
  }
  return activation == Activation::silu ? "silu" : "gelu_pytorch_tanh";
}

void read_scales(ConfigParts& config) {
  const Family& family = config.family;
  ModelSpec& spec = config.spec;
  KeyReader& keys = config.keys;
  read_activation(config);
  read_switches_of_attention(config);
  spec.scaled_embedding = family.scaled_embedding;
  if (family.query_pre_attn_scalar) {
    spec.query_pre_attn_scalar =
        keys.number("query_pre_attn_scalar", *family.query_pre_attn_scalar, scale_range);
  }
  if (family.reads_softcaps) {
    spec.attention_softcap = optional_number(keys, "attn_logit_softcapping", family.attention_softcap);
    spec.logits_softcap = optional_number(keys, "final_logit_softcapping", family.logits_softcap);
  }
  if (family.reads_multipliers) {
    spec.embedding_multiplier = keys.number("embedding_multiplier", 1.0, scale_range);
    spec.attention_multiplier = keys.number("attention_multiplier", 1.0, scale_range);
    spec.residual_multiplier = keys.number("residual_multiplier", 1.0, scale_range);
    spec.logits_scaling = keys.number("logits_scaling", 1.0, scale_range);
  }
}

void read_dropout(ConfigParts& config) {
  const bool usual = config.family.usual_dropout;
  for (const char* key : {usual ? "attn_pdrop" : "attention_dropout", "embd_pdrop", "resid_pdrop"}) {
    const bool given = config.keys.has(key);
    if (given ? config.root[key] == 0 : !usual) {
      continue;
    }
    const double dropout = config.keys.number(key, 0.1, {0, 1});
    if (usual) {
      log_warning(fmt::format("{}: {} is {}, but dropout is not built: the model runs without it",
                              config.source, key, dropout));
    } else {
      config.only_planned(key, fmt::format("is {}; allowed: 0 (dropout is not built)", dropout));
    }
  }
}

}  // namespace ndmesh::model
