#include "ndmesh/model/parameter_names.h"

#include <array>
#include <utility>

namespace ndmesh::model {
namespace {

constexpr ParameterNames llama = {};

constexpr ParameterNames gemma = {.attention_post_norm = "post_attention_layernorm",
                                  .mlp_norm = "pre_feedforward_layernorm",
                                  .mlp_post_norm = "post_feedforward_layernorm"};

constexpr ParameterNames olmo2 = {.attention_post_norm = "post_attention_layernorm",
                                  .mlp_post_norm = "post_feedforward_layernorm"};

constexpr ParameterNames gpt2 = {.embedding = "transformer.wte",
                                 .positions = "transformer.wpe",
                                 .layer = "transformer.h.",
                                 .final_norm = "transformer.ln_f",
                                 .attention_norm = "ln_1",
                                 .mlp_norm = "ln_2",
                                 .fused_qkv = "attn.c_attn",
                                 .attention_output = "attn.c_proj",
                                 .up = "c_fc",
                                 .down = "c_proj",
                                 .transposed = true};

constexpr ParameterNames gpt_neox = {.embedding = "gpt_neox.embed_in",
                                     .layer = "gpt_neox.layers.",
                                     .final_norm = "gpt_neox.final_layer_norm",
                                     .head = "embed_out",
                                     .fused_qkv = "attention.query_key_value",
                                     .attention_output = "attention.dense",
                                     .up = "dense_h_to_4h",
                                     .down = "dense_4h_to_h",
                                     .qkv_by_head = true};

constexpr ParameterNames mixtral = {.router = "block_sparse_moe.gate",
                                    .experts = "block_sparse_moe.experts.",
                                    .expert_gate = "w1",
                                    .expert_up = "w3",
                                    .expert_down = "w2"};

constexpr ParameterNames qwen2_moe = {.shared_expert = "mlp.shared_expert."};

constexpr ParameterNames deepseek_v3 = {.router_bias = "mlp.gate.e_score_correction_bias"};

constexpr ParameterNames gpt_oss = {
    .router = "mlp.router", .router_bias = "mlp.router.bias", .stacked_experts = true};

constexpr auto names = std::to_array<std::pair<std::string_view, const ParameterNames*>>({
    {"gemma2", &gemma},
    {"gemma3_text", &gemma},
    {"olmo2", &olmo2},
    {"gpt2", &gpt2},
    {"gpt_neox", &gpt_neox},
    {"mixtral", &mixtral},
    {"qwen2_moe", &qwen2_moe},
    {"deepseek_v3", &deepseek_v3},
    {"gpt_oss", &gpt_oss},
});

}  // namespace

const ParameterNames& names_of(std::string_view family) {
  for (const auto& [name, table] : names) {
    if (name == family) {
      return *table;
    }
  }
  return llama;
}

}  // namespace ndmesh::model
