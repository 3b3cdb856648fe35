#include <fmt/format.h>

#include <algorithm>

#include "ndmesh/model/config_parts.h"

namespace ndmesh::model {
namespace {

using Kind = Family::Experts;

constexpr IntegerRange none_or_more = {0, 1 << 16};

std::string count_key(Kind kind) {
  switch (kind) {
    case Kind::deepseek:
      return "n_routed_experts";
    case Kind::qwen:
      return "num_experts";
    case Kind::mixtral:
    case Kind::gpt_oss:
    case Kind::none:
      break;
  }
  return "num_local_experts";
}

/// Those of `mlp_only_layers`.
std::vector<std::size_t> dense_layers(ConfigParts& config) {
  if (!config.keys.has("mlp_only_layers")) {
    return {};
  }
  const nlohmann::json& dense = config.root["mlp_only_layers"];
  const bool right = dense.is_array() && std::all_of(dense.begin(), dense.end(), [&](const auto& layer) {
                       return layer.is_number_integer() && layer >= 0 && layer < config.spec.layers;
                     });
  if (!right) {
    config.keys.refuse("mlp_only_layers", fmt::format("a list of layers, 0 to {}", config.spec.layers - 1));
    return {};
  }
  return dense.get<std::vector<std::size_t>>();
}

/// By layer whether it is MoE. Dense ones come first (deepseek), or in between (qwen).
std::vector<bool> moe_layers(ConfigParts& config) {
  std::vector<bool> moe(static_cast<std::size_t>(config.spec.layers), true);
  if (config.family.experts == Kind::deepseek) {
    const std::int64_t usual = config.family.dense_layers;
    const std::int64_t dense = config.keys.integer("first_k_dense_replace", usual, {0, layers_range.most});
    std::fill_n(moe.begin(), std::min(dense, config.spec.layers), false);
    if (config.keys.integer("moe_layer_freq", 1, layers_range) != 1) {
      config.keys.refuse("moe_layer_freq", "1");
    }
  }
  if (config.family.experts == Kind::qwen) {
    const std::int64_t step = config.keys.integer("decoder_sparse_step", 1, layers_range);
    for (std::size_t layer = 0; layer < moe.size(); ++layer) {
      moe[layer] = (static_cast<std::int64_t>(layer) + 1) % step == 0;
    }
    for (const std::size_t layer : dense_layers(config)) {
      moe[layer] = false;
    }
  }
  return moe;
}

std::int64_t shared_ffn(ConfigParts& config, std::int64_t expert_ffn) {
  const std::int64_t usual = config.family.shared_experts;
  if (config.family.experts == Kind::qwen && usual > 0) {
    return config.keys.integer("shared_expert_intermediate_size", usual, ffn_range);
  }
  if (config.family.experts == Kind::deepseek) {
    const bool absent = !config.keys.present("n_shared_experts");
    const auto number = config.keys.optional_integer("n_shared_experts", none_or_more);
    return number.value_or(absent ? usual : 0) * expert_ffn;
  }
  return 0;
}

/// Experts under names that the family does not read: a model that has them must not pass for a dense one.
void refuse_experts(ConfigParts& config) {
  for (const char* key : {"num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"}) {
    const bool some = config.keys.has(key) && config.root[key] != 0 && config.root[key] != 1;
    if (some) {
      config.keys.refuse(key, fmt::format("none, as family {} is dense; families with experts are mixtral, "
                                          "qwen2_moe, qwen3_moe, deepseek_v2, deepseek_v3, gpt_oss",
                                          config.family.name));
    }
  }
}

}  // namespace

void read_experts(ConfigParts& config) {
  const Family& family = config.family;
  if (family.experts == Kind::none) {
    return refuse_experts(config);
  }
  Experts experts;
  KeyReader& keys = config.keys;
  experts.count = keys.integer(count_key(family.experts), family.expert_count, experts_range);
  const std::string top = "num_experts_per_tok";
  if (!keys.has(top) && family.experts_per_token == 0) {
    keys.problem(top, fmt::format("is missing; allowed: an integer from 1 to {}", experts.count));
  }
  experts.per_token = keys.has(top) ? keys.integer(top, 1, {1, experts.count})
                                    : std::max<std::int64_t>(family.experts_per_token, 1);
  if (experts.per_token > experts.count) {
    keys.problem(top, fmt::format("{} (what {} takes for an absent key) is above the {} experts",
                                  experts.per_token, family.name, experts.count));
  }
  const bool own_width = family.expert_ffn > 0;
  experts.ffn =
      own_width ? keys.integer("moe_intermediate_size", family.expert_ffn, ffn_range) : config.spec.ffn;
  experts.shared_ffn = shared_ffn(config, experts.ffn);
  experts.shared_gate = family.experts == Kind::qwen && experts.shared_ffn > 0;
  experts.bias = family.experts == Kind::gpt_oss;
  experts.router_bias = family.router_bias;
  experts.layers = moe_layers(config);
  if (std::count(experts.layers.begin(), experts.layers.end(), true) > 0) {
    config.spec.experts = std::move(experts);
  }
}

void read_latent_attention(ConfigParts& config) {
  if (config.family.experts != Kind::deepseek) {
    return;
  }
  KeyReader& keys = config.keys;
  LatentAttention latent;
  const auto query_rank = keys.optional_integer("q_lora_rank", hidden_range);
  latent.query_rank = query_rank.value_or(keys.present("q_lora_rank") ? 0 : 1536);
  latent.kv_rank = keys.integer("kv_lora_rank", 512, hidden_range);
  latent.nope_dim = keys.integer("qk_nope_head_dim", 128, head_dim_range);
  latent.rope_dim = keys.integer("qk_rope_head_dim", 64, head_dim_range);
  latent.value_dim = keys.integer("v_head_dim", 128, head_dim_range);
  if (latent.rope_dim % 2 != 0) {
    keys.refuse("qk_rope_head_dim", "an even number; rotary positions turn pairs");
  }
  config.spec.latent = latent;
  config.spec.head_dim = latent.nope_dim + latent.rope_dim;
  config.spec.mtp_layers = keys.integer("num_nextn_predict_layers", 0, {0, 64});
}

}  // namespace ndmesh::model
