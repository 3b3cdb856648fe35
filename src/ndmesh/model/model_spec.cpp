#include "ndmesh/model/model_spec.h"

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>

namespace ndmesh::model {
namespace {

/// Appends parameters in the order of the model.
class Inventory {
 public:
  explicit Inventory(const ModelSpec& spec) : spec_(spec) {}

  std::vector<ParameterSpec> take() {
    add("model.embed_tokens.weight", {spec_.vocab, spec_.hidden}, Role::embedding);
    for (layer_ = 0; layer_ < spec_.layers; ++layer_) {
      add_layer();
    }
    layer_ = -1;
    add("model.norm.weight", {spec_.hidden}, Role::norm);
    if (!spec_.tied) {
      add("lm_head.weight", {spec_.vocab, spec_.hidden}, Role::head);
    }
    return std::move(list_);
  }

 private:
  void add(const std::string& name, std::vector<std::int64_t> shape, Role role, bool bias = false) {
    list_.push_back({name, std::move(shape), role, bias, layer_});
  }

  void add_linear(const std::string& name, std::int64_t out, std::int64_t in, Role role, bool with_bias) {
    add(name + ".weight", {out, in}, role);
    if (with_bias) {
      add(name + ".bias", {out}, role, true);
    }
  }

  void add_layer() {
    const std::string prefix = "model.layers." + std::to_string(layer_) + ".";
    const std::string attention = prefix + "self_attn.";
    const std::int64_t query_rows = spec_.heads * spec_.head_dim;
    const std::int64_t key_rows = spec_.kv_heads * spec_.head_dim;
    add(prefix + "input_layernorm.weight", {spec_.hidden}, Role::norm);
    add_linear(attention + "q_proj", query_rows, spec_.hidden, Role::query, spec_.qkv_bias);
    add_linear(attention + "k_proj", key_rows, spec_.hidden, Role::key, spec_.qkv_bias);
    add_linear(attention + "v_proj", key_rows, spec_.hidden, Role::value, spec_.qkv_bias);
    if (spec_.qk_norm) {
      add(attention + "q_norm.weight", {spec_.head_dim}, Role::head_norm);
      add(attention + "k_norm.weight", {spec_.head_dim}, Role::head_norm);
    }
    add_linear(attention + "o_proj", spec_.hidden, query_rows, Role::attention_output, spec_.output_bias);
    add(prefix + "post_attention_layernorm.weight", {spec_.hidden}, Role::norm);
    add_linear(prefix + "mlp.gate_proj", spec_.ffn, spec_.hidden, Role::gate, spec_.mlp_bias);
    add_linear(prefix + "mlp.up_proj", spec_.ffn, spec_.hidden, Role::up, spec_.mlp_bias);
    add_linear(prefix + "mlp.down_proj", spec_.hidden, spec_.ffn, Role::down, spec_.mlp_bias);
  }

  const ModelSpec& spec_;
  std::int64_t layer_ = -1;
  std::vector<ParameterSpec> list_;
};

}  // namespace

std::string_view name_of(Role role) {
  constexpr std::array<std::string_view, 20> names = {
      "embedding",   "query",     "key",         "value",       "attention_output",
      "gate",        "up",        "down",        "norm",        "head_norm",
      "head",        "positions", "fused_qkv",   "latent_down", "router",
      "expert_gate", "expert_up", "expert_down", "sinks",       "unspecified"};
  return names[static_cast<std::size_t>(role)];
}

std::int64_t ParameterSpec::elements() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::vector<ParameterSpec> ModelSpec::parameters() const {
  return Inventory(*this).take();
}

std::int64_t ModelSpec::parameter_count() const {
  std::int64_t count = 0;
  for (const ParameterSpec& parameter : parameters()) {
    count += parameter.elements();
  }
  return count;
}

std::int64_t ModelSpec::active_parameter_count() const {
  return parameter_count();
}

bool ModelSpec::is_moe(std::int64_t layer) const {
  return experts && experts->layers.at(static_cast<std::size_t>(std::min(layer, layers - 1)));
}

bool ModelSpec::is_windowed(std::int64_t layer) const {
  return sliding_window &&
         (windowed.empty() || windowed.at(static_cast<std::size_t>(std::min(layer, layers - 1))));
}

std::int64_t ModelSpec::query_width() const {
  return heads * (latent ? latent->nope_dim + latent->rope_dim : head_dim);
}

std::int64_t ModelSpec::value_width() const {
  return heads * (latent ? latent->value_dim : head_dim);
}

std::int64_t ModelSpec::kv_elements_per_token() const {
  return latent ? latent->kv_rank + latent->rope_dim : 2 * kv_heads * head_dim;
}

}  // namespace ndmesh::model
