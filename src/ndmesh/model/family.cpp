#include "ndmesh/model/family.h"

#include <array>

#include "ndmesh/model/config.h"

namespace ndmesh::model {
namespace {

constexpr std::array<Family, 4> families = {{
    {.name = "llama",
     .architecture = "LlamaForCausalLM",
     .vocab = 32000,
     .hidden = 4096,
     .ffn = 11008,
     .layers = 32,
     .heads = 32,
     .kv_heads = std::nullopt,
     .head_dim = std::nullopt,
     .max_positions = 2048,
     .bos_token = 1,
     .eos_token = 2,
     .window = Family::Window::none,
     .always_qkv_bias = false,
     .reads_attention_bias = true,
     .reads_mlp_bias = true,
     .qk_norm = false},
    {.name = "mistral",
     .architecture = "MistralForCausalLM",
     .vocab = 32000,
     .hidden = 4096,
     .ffn = 14336,
     .layers = 32,
     .heads = 32,
     .kv_heads = 8,
     .head_dim = std::nullopt,
     .max_positions = 131072,
     .bos_token = 1,
     .eos_token = 2,
     .window = Family::Window::always,
     .always_qkv_bias = false,
     .reads_attention_bias = false,
     .reads_mlp_bias = false,
     .qk_norm = false},
    {.name = "qwen2",
     .architecture = "Qwen2ForCausalLM",
     .vocab = 151936,
     .hidden = 4096,
     .ffn = 22016,
     .layers = 32,
     .heads = 32,
     .kv_heads = 32,
     .head_dim = std::nullopt,
     .max_positions = 32768,
     .bos_token = std::nullopt,
     .eos_token = std::nullopt,
     .window = Family::Window::switched,
     .always_qkv_bias = true,
     .reads_attention_bias = false,
     .reads_mlp_bias = false,
     .qk_norm = false},
    {.name = "qwen3",
     .architecture = "Qwen3ForCausalLM",
     .vocab = 151936,
     .hidden = 4096,
     .ffn = 22016,
     .layers = 32,
     .heads = 32,
     .kv_heads = 32,
     .head_dim = 128,
     .max_positions = 32768,
     .bos_token = std::nullopt,
     .eos_token = std::nullopt,
     .window = Family::Window::switched,
     .always_qkv_bias = false,
     .reads_attention_bias = true,
     .reads_mlp_bias = false,
     .qk_norm = true},
}};

}  // namespace

const Family* find_family(std::string_view model_type) {
  for (const Family& family : families) {
    if (family.name == model_type) {
      return &family;
    }
  }
  return nullptr;
}

std::vector<std::string> supported_families() {
  std::vector<std::string> names;
  for (const Family& family : families) {
    names.emplace_back(family.name);
  }
  return names;
}

}  // namespace ndmesh::model
