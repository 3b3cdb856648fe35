#include "ndmesh/model/family.h"

#include <array>

#include "ndmesh/model/config.h"

namespace ndmesh::model {
namespace {

using Window = Family::Window;

constexpr Family llama = {.name = "llama",
                          .architecture = "LlamaForCausalLM",
                          .runs = true,
                          .vocab = 32000,
                          .hidden = 4096,
                          .ffn = 11008,
                          .layers = 32,
                          .heads = 32,
                          .max_positions = 2048,
                          .bos_token = 1,
                          .eos_token = 2,
                          .reads_attention_bias = true,
                          .reads_mlp_bias = true};

constexpr Family mistral = {.name = "mistral",
                            .architecture = "MistralForCausalLM",
                            .runs = true,
                            .vocab = 32000,
                            .hidden = 4096,
                            .ffn = 14336,
                            .layers = 32,
                            .heads = 32,
                            .kv_heads = 8,
                            .max_positions = 131072,
                            .bos_token = 1,
                            .eos_token = 2,
                            .window = Window::every,
                            .sliding_window = 4096};

constexpr Family qwen2 = {.name = "qwen2",
                          .architecture = "Qwen2ForCausalLM",
                          .runs = true,
                          .vocab = 151936,
                          .hidden = 4096,
                          .ffn = 22016,
                          .layers = 32,
                          .heads = 32,
                          .kv_heads = 32,
                          .max_positions = 32768,
                          .window = Window::from_layer,
                          .window_switch = true,
                          .sliding_window = 4096,
                          .always_qkv_bias = true};

constexpr Family qwen3 = {.name = "qwen3",
                          .architecture = "Qwen3ForCausalLM",
                          .runs = true,
                          .vocab = 151936,
                          .hidden = 4096,
                          .ffn = 22016,
                          .layers = 32,
                          .heads = 32,
                          .kv_heads = 32,
                          .head_dim = 128,
                          .max_positions = 32768,
                          .window = Window::from_layer,
                          .window_switch = true,
                          .sliding_window = 4096,
                          .reads_attention_bias = true,
                          .qk_norm = true};

constexpr Family gemma2 = {.name = "gemma2",
                           .architecture = "Gemma2ForCausalLM",
                           .runs = true,
                           .keys = {.activation = "hidden_activation"},
                           .vocab = 256000,
                           .hidden = 2304,
                           .ffn = 9216,
                           .layers = 26,
                           .heads = 8,
                           .kv_heads = 4,
                           .head_dim = 256,
                           .max_positions = 8192,
                           .bos_token = 2,
                           .eos_token = 1,
                           .pad_token = 0,
                           .activation = "gelu_pytorch_tanh",
                           .tied = true,
                           .window = Window::alternating,
                           .sliding_window = 4096,
                           .window_period = 2,
                           .reads_attention_bias = true,
                           .unit_offset_norm = true,
                           .post_norms = true,
                           .scaled_embedding = true,
                           .reads_softcaps = true,
                           .attention_softcap = 50,
                           .logits_softcap = 30,
                           .query_pre_attn_scalar = 256};

constexpr Family gemma3 = {.name = "gemma3_text",
                           .architecture = "Gemma3ForCausalLM",
                           .runs = true,
                           .keys = {.activation = "hidden_activation"},
                           .vocab = 262208,
                           .hidden = 2304,
                           .ffn = 9216,
                           .layers = 26,
                           .heads = 8,
                           .kv_heads = 4,
                           .head_dim = 256,
                           .max_positions = 131072,
                           .bos_token = 2,
                           .eos_token = 1,
                           .pad_token = 0,
                           .rope_theta = 1e6,
                           .activation = "gelu_pytorch_tanh",
                           .tied = true,
                           .window = Window::alternating,
                           .sliding_window = 4096,
                           .window_period = 6,
                           .reads_attention_bias = true,
                           .qk_norm = true,
                           .unit_offset_norm = true,
                           .post_norms = true,
                           .scaled_embedding = true,
                           .reads_softcaps = true,
                           .query_pre_attn_scalar = 256,
                           .rope_local_theta = 1e4};

constexpr Family gpt2 = {.name = "gpt2",
                         .architecture = "GPT2LMHeadModel",
                         .runs = true,
                         .keys = {.hidden = "n_embd",
                                  .ffn = "n_inner",
                                  .layers = "n_layer",
                                  .heads = "n_head",
                                  .positions = "n_positions",
                                  .norm_eps = "layer_norm_epsilon",
                                  .activation = "activation_function"},
                         .vocab = 50257,
                         .hidden = 768,
                         .layers = 12,
                         .heads = 12,
                         .reads_kv_heads = false,
                         .reads_head_dim = false,
                         .max_positions = 1024,
                         .bos_token = 50256,
                         .eos_token = 50256,
                         .norm_eps = 1e-5,
                         .activation = "gelu_new",
                         .tied = true,
                         .attention_bias = true,
                         .mlp_bias = true,
                         .layer_norm = true,
                         .gated = false,
                         .learned_positions = true,
                         .fused_qkv = true,
                         .usual_dropout = true};

constexpr Family gpt_neox = {.name = "gpt_neox",
                             .architecture = "GPTNeoXForCausalLM",
                             .keys = {.norm_eps = "layer_norm_eps"},
                             .vocab = 50432,
                             .hidden = 6144,
                             .ffn = 24576,
                             .layers = 44,
                             .heads = 64,
                             .reads_kv_heads = false,
                             .reads_head_dim = false,
                             .max_positions = 2048,
                             .bos_token = 0,
                             .eos_token = 2,
                             .norm_eps = 1e-5,
                             .reads_attention_bias = true,
                             .attention_bias = true,
                             .mlp_bias = true,
                             .layer_norm = true,
                             .gated = false,
                             .fused_qkv = true};

constexpr Family mixtral = {.name = "mixtral",
                            .architecture = "MixtralForCausalLM",
                            .vocab = 32000,
                            .hidden = 4096,
                            .ffn = 14336,
                            .layers = 32,
                            .heads = 32,
                            .kv_heads = 8,
                            .max_positions = 131072,
                            .bos_token = 1,
                            .eos_token = 2,
                            .norm_eps = 1e-5,
                            .rope_theta = 1e6,
                            .window = Window::every,
                            .experts = Family::Experts::mixtral,
                            .expert_count = 8,
                            .experts_per_token = 2};

constexpr Family qwen2_moe = {.name = "qwen2_moe",
                              .architecture = "Qwen2MoeForCausalLM",
                              .vocab = 151936,
                              .hidden = 2048,
                              .ffn = 5632,
                              .layers = 24,
                              .heads = 16,
                              .kv_heads = 16,
                              .reads_head_dim = false,
                              .max_positions = 32768,
                              .window = Window::every,
                              .window_switch = true,
                              .sliding_window = 4096,
                              .reads_qkv_bias = true,
                              .experts = Family::Experts::qwen,
                              .expert_count = 60,
                              .experts_per_token = 4,
                              .expert_ffn = 1408,
                              .shared_experts = 5632};

constexpr Family qwen3_moe = {.name = "qwen3_moe",
                              .architecture = "Qwen3MoeForCausalLM",
                              .vocab = 151936,
                              .hidden = 2048,
                              .ffn = 6144,
                              .layers = 24,
                              .heads = 32,
                              .kv_heads = 4,
                              .max_positions = 32768,
                              .window = Window::every,
                              .window_switch = true,
                              .sliding_window = 4096,
                              .reads_attention_bias = true,
                              .qk_norm = true,
                              .experts = Family::Experts::qwen,
                              .expert_count = 128,
                              .experts_per_token = 8,
                              .expert_ffn = 768};

constexpr Family deepseek_v2 = {.name = "deepseek_v2",
                                .architecture = "DeepseekV2ForCausalLM",
                                .vocab = 32000,
                                .hidden = 4096,
                                .ffn = 11008,
                                .layers = 32,
                                .heads = 32,
                                .reads_kv_heads = false,
                                .max_positions = 2048,
                                .bos_token = 1,
                                .eos_token = 2,
                                .reads_attention_bias = true,
                                .reads_mlp_bias = true,
                                .experts = Family::Experts::deepseek,
                                .expert_count = 64,
                                .expert_ffn = 1407,
                                .shared_experts = 2};

constexpr Family deepseek_v3 = {.name = "deepseek_v3",
                                .architecture = "DeepseekV3ForCausalLM",
                                .vocab = 129280,
                                .hidden = 7168,
                                .ffn = 18432,
                                .layers = 61,
                                .heads = 128,
                                .reads_kv_heads = false,
                                .max_positions = 4096,
                                .bos_token = 0,
                                .eos_token = 1,
                                .reads_attention_bias = true,
                                .experts = Family::Experts::deepseek,
                                .expert_count = 256,
                                .experts_per_token = 8,
                                .expert_ffn = 2048,
                                .dense_layers = 3,
                                .router_bias = true,
                                .shared_experts = 1};

constexpr Family gpt_oss = {.name = "gpt_oss",
                            .architecture = "GptOssForCausalLM",
                            .vocab = 201088,
                            .hidden = 2880,
                            .ffn = 2880,
                            .layers = 36,
                            .heads = 64,
                            .kv_heads = 8,
                            .head_dim = 64,
                            .max_positions = 131072,
                            .norm_eps = 1e-5,
                            .rope_theta = 150000,
                            .window = Window::alternating,
                            .sliding_window = 128,
                            .window_period = 2,
                            .attention_bias = true,
                            .attention_sinks = true,
                            .experts = Family::Experts::gpt_oss,
                            .expert_count = 128,
                            .experts_per_token = 4,
                            .router_bias = true};

constexpr Family phi3 = {.name = "phi3",
                         .architecture = "Phi3ForCausalLM",
                         .runs = true,
                         .vocab = 32064,
                         .hidden = 3072,
                         .ffn = 8192,
                         .layers = 32,
                         .heads = 32,
                         .max_positions = 4096,
                         .bos_token = 1,
                         .eos_token = 32000,
                         .pad_token = 32000,
                         .norm_eps = 1e-5,
                         .window = Window::every,
                         .fused_qkv = true,
                         .fused_gate_up = true,
                         .reads_rotary_factor = true};

constexpr Family olmo2 = {.name = "olmo2",
                          .architecture = "Olmo2ForCausalLM",
                          .runs = true,
                          .vocab = 50304,
                          .hidden = 4096,
                          .ffn = 11008,
                          .layers = 32,
                          .heads = 32,
                          .max_positions = 2048,
                          .eos_token = 50279,
                          .pad_token = 1,
                          .norm_eps = 1e-5,
                          .reads_attention_bias = true,
                          .qk_norm = true,
                          .qk_norm_whole = true,
                          .pre_norms = false,
                          .post_norms = true};

constexpr Family granite = {.name = "granite",
                            .architecture = "GraniteForCausalLM",
                            .runs = true,
                            .vocab = 32000,
                            .hidden = 4096,
                            .ffn = 11008,
                            .layers = 32,
                            .heads = 32,
                            .max_positions = 2048,
                            .bos_token = 1,
                            .eos_token = 2,
                            .reads_attention_bias = true,
                            .reads_mlp_bias = true,
                            .reads_multipliers = true};

constexpr std::array families = {&llama,       &mistral,  &qwen2,   &qwen3,     &gemma2,    &gemma3,
                                 &gpt2,        &gpt_neox, &mixtral, &qwen2_moe, &qwen3_moe, &deepseek_v2,
                                 &deepseek_v3, &gpt_oss,  &phi3,    &olmo2,     &granite};

}  // namespace

const Family* find_family(std::string_view model_type) {
  if (model_type == "gemma3") {
    return &gemma3;  // the name of the whole, of which text_config is the language model
  }
  for (const Family* family : families) {
    if (family->name == model_type) {
      return family;
    }
  }
  return nullptr;
}

std::vector<std::string> supported_families() {
  std::vector<std::string> names;
  for (const Family* family : families) {
    names.emplace_back(family->name);
  }
  return names;
}

std::vector<std::string> runnable_families() {
  std::vector<std::string> names;
  for (const Family* family : families) {
    if (family->runs) {
      names.emplace_back(family->name);
    }
  }
  return names;
}

}  // namespace ndmesh::model
