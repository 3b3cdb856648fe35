#include <array>

#include "ndmesh/base/error.h"
#include "ndmesh/base/nearest.h"
#include "ndmesh/base/text.h"
#include "ndmesh/model/config.h"

namespace ndmesh::model {
namespace {

struct Preset {
  std::string_view name;
  std::string_view family;
  std::int64_t hidden, layers, heads, kv_heads, head_dim, ffn, vocab, max_positions;
  double norm_eps, rope_theta;
  RopeScaling rope_scaling;
  bool tied, byte_tokens;
};

constexpr RopeScaling plain = {};

constexpr RopeScaling llama3_scaling(double factor) {
  return {RopeScaling::Kind::llama3, factor, 1.0, 4.0, 8192};
}

// The published models have the numbers of their own config.json.
constexpr std::array presets = std::to_array<Preset>({
    // name, family, hidden, layers, heads, kv_heads, head_dim, ffn, vocab, positions, eps, theta, scaling,
    // tied, bytes
    {"llama-1m", "llama", 128, 5, 4, 2, 32, 352, 256, 1024, 1e-5, 1e4, plain, false, true},
    {"llama-bytes-5m", "llama", 256, 6, 8, 4, 32, 704, 256, 2048, 1e-5, 1e4, plain, false, true},
    {"llama-28m", "llama", 512, 8, 8, 4, 64, 1408, 4096, 2048, 1e-5, 1e4, plain, false, false},
    {"llama-182m", "llama", 1024, 14, 16, 8, 64, 2816, 8192, 2048, 1e-5, 1e4, plain, false, false},
    {"llama-1b", "llama", 2048, 22, 32, 4, 64, 5632, 32000, 2048, 1e-5, 1e4, plain, false, false},
    {"qwen3-0.6b", "qwen3", 1024, 28, 16, 8, 128, 3072, 151936, 40960, 1e-6, 1e6, plain, true, false},
    {"llama-3.2-1b", "llama", 2048, 16, 32, 8, 64, 8192, 128256, 131072, 1e-5, 5e5, llama3_scaling(32), true,
     false},
    {"llama-3-8b", "llama", 4096, 32, 32, 8, 128, 14336, 128256, 8192, 1e-5, 5e5, plain, false, false},
    {"llama-3-70b", "llama", 8192, 80, 64, 8, 128, 28672, 128256, 8192, 1e-5, 5e5, plain, false, false},
    {"llama-3.1-405b", "llama", 16384, 126, 128, 8, 128, 53248, 128256, 131072, 1e-5, 5e5, llama3_scaling(8),
     false, false},
});

/// Models of other families: the numbers of their config.json. The gpt models have GPT-3's vocabulary and
/// positions (arXiv 2005.14165, table 2.1; of its two inconsistent heads for 1.3b the ones that make up the
/// width); deepseek-v3 comes without its multi-token prediction layer, as its published count does.
struct ConfigPreset {
  std::string_view name;
  std::string_view config;
};
constexpr std::array config_presets = std::to_array<ConfigPreset>({
    {"gpt-1.3b",
     R"({"model_type": "gpt2", "n_embd": 2048, "n_layer": 24, "n_head": 16, "n_positions": 2048,
         "attn_pdrop": 0, "embd_pdrop": 0, "resid_pdrop": 0})"},
    {"gpt-175b",
     R"({"model_type": "gpt2", "n_embd": 12288, "n_layer": 96, "n_head": 96, "n_positions": 2048,
         "attn_pdrop": 0, "embd_pdrop": 0, "resid_pdrop": 0})"},
    {"mixtral-8x7b", R"({"model_type": "mixtral", "max_position_embeddings": 32768, "rope_theta": 1e6})"},
    {"deepseek-v3", R"({"model_type": "deepseek_v3", "max_position_embeddings": 163840})"},
});

ModelSpec spec_of(const Preset& preset) {
  ModelSpec spec;
  spec.family = preset.family;
  spec.vocab = preset.vocab;
  spec.hidden = preset.hidden;
  spec.layers = preset.layers;
  spec.heads = preset.heads;
  spec.kv_heads = preset.kv_heads;
  spec.head_dim = preset.head_dim;
  spec.ffn = preset.ffn;
  spec.max_positions = preset.max_positions;
  spec.norm_eps = preset.norm_eps;
  spec.rope_theta = preset.rope_theta;
  spec.rope_scaling = preset.rope_scaling;
  spec.tied = preset.tied;
  spec.qk_norm = preset.family == "qwen3";
  spec.byte_tokens = preset.byte_tokens;
  return spec;
}

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& preset : presets) {
    names.emplace_back(preset.name);
  }
  for (const ConfigPreset& preset : config_presets) {
    names.emplace_back(preset.name);
  }
  return names;
}

ModelSpec preset(const std::string& name) {
  for (const Preset& preset : presets) {
    if (preset.name == name) {
      return spec_of(preset);
    }
  }
  for (const ConfigPreset& preset : config_presets) {
    if (preset.name == name) {
      return spec_from_config(preset.config, name);
    }
  }
  throw RequestError("model.preset: no preset is named " + shown(name) +
                     "; presets: " + join(preset_names()) + did_you_mean(name, preset_names()));
}

}  // namespace ndmesh::model
