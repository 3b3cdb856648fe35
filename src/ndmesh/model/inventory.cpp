#include "ndmesh/model/inventory.h"

#include "ndmesh/model/parameter_names.h"

namespace ndmesh::model {
namespace {

using Names = ParameterNames;

/// A linear of one part of the model.
struct Linear {
  Role role;
  std::int64_t out;
  std::int64_t in;
  bool bias = false;
  std::vector<std::int64_t> segments = {};
};

/// Appends parameters in the order of the model.
class Inventory {
 public:
  Inventory(const ModelSpec& spec, std::int64_t layer)
      : spec_(spec), names_(names_of(spec.family)), layer_(layer) {
    if (layer >= 0) {
      prefix_ = std::string(names_.layer) + std::to_string(layer) + ".";
    }
  }

  void add_ends() {
    add_table(names_.embedding, spec_.vocab, Role::embedding);
    if (spec_.learned_positions) {
      add_table(names_.positions, spec_.max_positions, Role::positions);
    }
    add_norm(names_.final_norm);
    if (!spec_.tied) {
      add_table(names_.head, spec_.vocab, Role::head);
    }
    if (spec_.unspecified_parameters > 0) {
      add({.name = "unspecified", .shape = {spec_.unspecified_parameters}, .role = Role::unspecified});
    }
  }

  void add_layer() {
    if (layer_ >= spec_.layers) {
      add_mtp_parts();
    }
    if (spec_.pre_norms) {
      add_norm(names_.attention_norm);
    }
    spec_.latent ? add_latent_attention(*spec_.latent) : add_attention();
    if (spec_.post_norms) {
      add_norm(names_.attention_post_norm);
    }
    if (spec_.pre_norms) {
      add_norm(names_.mlp_norm);
    }
    spec_.is_moe(layer_) ? add_experts(*spec_.experts)
                         : add_mlp(std::string(names_.mlp), spec_.ffn, spec_.mlp_bias);
    if (spec_.post_norms) {
      add_norm(names_.mlp_post_norm);
    }
  }

  std::vector<LayerParameter> take() { return std::move(list_); }

 private:
  void add(ParameterSpec parameter, std::int64_t copies = 1) {
    parameter.name.insert(0, prefix_);
    parameter.layer = layer_;
    list_.push_back({std::move(parameter), copies});
  }

  void add_table(std::string_view name, std::int64_t rows, Role role) {
    add({.name = std::string(name) + ".weight", .shape = {rows, spec_.hidden}, .role = role});
  }

  /// RMSNorm over `width`, or LayerNorm.
  void add_norm_over(std::string_view name, std::int64_t width, Role role) {
    add({.name = std::string(name) + ".weight", .shape = {width}, .role = role});
    if (spec_.layer_norm) {
      add({.name = std::string(name) + ".bias", .shape = {width}, .role = role, .bias = true});
    }
  }

  void add_norm(std::string_view name) { add_norm_over(name, spec_.hidden, Role::norm); }

  void add_linear(std::string_view module, const Linear& linear) {
    const std::string name(module);
    ParameterSpec weight = {.name = name + ".weight", .shape = {linear.out, linear.in}, .role = linear.role};
    weight.segments = linear.segments;
    if (names_.transposed) {
      weight.transposed = true;
      weight.shape = {linear.in, linear.out};
    }
    add(weight);
    if (linear.bias) {
      add({.name = name + ".bias",
           .shape = {linear.out},
           .role = linear.role,
           .bias = true,
           .segments = linear.segments});
    }
  }

  void add_attention() {
    const std::int64_t queries = spec_.heads * spec_.head_dim;
    const std::int64_t keys = spec_.kv_heads * spec_.head_dim;
    if (spec_.fused_qkv) {
      Linear fused = {Role::fused_qkv, queries + 2 * keys, spec_.hidden, spec_.qkv_bias};
      if (!names_.qkv_by_head) {
        fused.segments = {queries, keys, keys};
      }
      add_linear(names_.fused_qkv, fused);
    } else {
      add_linear(names_.query, {Role::query, queries, spec_.hidden, spec_.qkv_bias});
      add_linear(names_.key, {Role::key, keys, spec_.hidden, spec_.qkv_bias});
      add_linear(names_.value, {Role::value, keys, spec_.hidden, spec_.qkv_bias});
    }
    if (spec_.qk_norm) {
      const bool whole = spec_.qk_norm_whole;
      add_norm_over(names_.query_norm, whole ? queries : spec_.head_dim, Role::head_norm);
      add_norm_over(names_.key_norm, whole ? keys : spec_.head_dim, Role::head_norm);
    }
    if (spec_.attention_sinks) {
      add({.name = std::string(names_.sinks), .shape = {spec_.heads}, .role = Role::sinks});
    }
    add_linear(names_.attention_output, {Role::attention_output, spec_.hidden, queries, spec_.output_bias});
  }

  /// DeepSeek-V2 (arXiv 2405.04434, section 2.1).
  void add_latent_attention(const LatentAttention& latent) {
    const std::string attention = "self_attn.";
    if (latent.query_rank > 0) {
      add_linear(attention + "q_a_proj",
                 {Role::latent_down, latent.query_rank, spec_.hidden, spec_.qkv_bias});
      add_norm_over(attention + "q_a_layernorm", latent.query_rank, Role::norm);
      add_linear(attention + "q_b_proj", {Role::query, spec_.query_width(), latent.query_rank});
    } else {
      add_linear(names_.query, {Role::query, spec_.query_width(), spec_.hidden});
    }
    add_linear(attention + "kv_a_proj_with_mqa",
               {Role::latent_down, latent.kv_rank + latent.rope_dim, spec_.hidden, spec_.qkv_bias});
    add_norm_over(attention + "kv_a_layernorm", latent.kv_rank, Role::norm);
    add_linear(attention + "kv_b_proj",
               {Role::latent_up, spec_.heads * (latent.nope_dim + latent.value_dim), latent.kv_rank});
    add_linear(names_.attention_output,
               {Role::attention_output, spec_.hidden, spec_.value_width(), spec_.output_bias});
  }

  void add_mlp(const std::string& prefix, std::int64_t ffn, bool bias) {
    if (spec_.fused_gate_up) {
      add_linear(prefix + std::string(names_.fused_gate_up),
                 {Role::fused_gate_up, 2 * ffn, spec_.hidden, bias, {ffn, ffn}});
    } else {
      if (spec_.gated) {
        add_linear(prefix + std::string(names_.gate), {Role::gate, ffn, spec_.hidden, bias});
      }
      add_linear(prefix + std::string(names_.up), {Role::up, ffn, spec_.hidden, bias});
    }
    add_linear(prefix + std::string(names_.down), {Role::down, spec_.hidden, ffn, bias});
  }

  void add_experts(const Experts& experts) {
    add_linear(names_.router, {Role::router, experts.count, spec_.hidden});
    if (experts.router_bias) {
      add({.name = std::string(names_.router_bias),
           .shape = {experts.count},
           .role = Role::router,
           .bias = true});
    }
    if (names_.stacked_experts) {
      add_stacked(Role::expert_gate_up, "gate_up_proj", {spec_.hidden, 2 * experts.ffn});
      add_stacked(Role::expert_down, "down_proj", {experts.ffn, spec_.hidden});
    } else {
      if (spec_.gated) {
        add_expert(Role::expert_gate, names_.expert_gate, {experts.ffn, spec_.hidden});
      }
      add_expert(Role::expert_up, names_.expert_up, {experts.ffn, spec_.hidden});
      add_expert(Role::expert_down, names_.expert_down, {spec_.hidden, experts.ffn});
    }
    if (experts.shared_ffn > 0) {
      add_mlp(std::string(names_.shared_expert), experts.shared_ffn, spec_.mlp_bias);
    }
    if (experts.shared_gate) {
      add_linear(names_.shared_gate, {Role::router, 1, spec_.hidden});
    }
  }

  /// Expert 0, for all.
  void add_expert(Role role, std::string_view name, std::vector<std::int64_t> shape) {
    const Experts& experts = *spec_.experts;
    const std::string full = std::string(names_.experts) + "0." + std::string(name);
    const std::int64_t out = shape.front();
    add({.name = full + ".weight", .shape = std::move(shape), .role = role, .expert = 0}, experts.count);
    if (experts.bias) {
      add({.name = full + ".bias", .shape = {out}, .role = role, .bias = true, .expert = 0}, experts.count);
    }
  }

  void add_stacked(Role role, const std::string& name, const std::vector<std::int64_t>& in_out) {
    const Experts& experts = *spec_.experts;
    ParameterSpec weight = {.name = std::string(names_.experts) + name,
                            .shape = {experts.count, in_out[0], in_out[1]},
                            .role = role};
    weight.expert = 0;
    weight.stacked = weight.transposed = true;
    ParameterSpec bias = weight;
    bias.name += "_bias";
    bias.shape = {experts.count, in_out[1]};
    bias.bias = true;
    add(std::move(weight));
    if (experts.bias) {
      add(std::move(bias));
    }
  }

  /// DeepSeek-V3 (arXiv 2412.19437, section 2.2): the layer reads the norm of what lies before it and the
  /// norm of the next token's embedding, projected together; its head and table are the model's own.
  void add_mtp_parts() {
    add_norm("enorm");
    add_norm("hnorm");
    add_linear("eh_proj", {Role::mtp_projection, spec_.hidden, 2 * spec_.hidden});
    add_norm("shared_head.norm");
  }

  const ModelSpec& spec_;
  const Names& names_;
  std::int64_t layer_;
  std::string prefix_;
  std::vector<LayerParameter> list_;
};

}  // namespace

std::vector<LayerParameter> layer_inventory(const ModelSpec& spec, std::int64_t layer) {
  Inventory inventory(spec, layer);
  inventory.add_layer();
  return inventory.take();
}

std::vector<ParameterSpec> end_inventory(const ModelSpec& spec) {
  Inventory inventory(spec, -1);
  inventory.add_ends();
  std::vector<ParameterSpec> ends;
  for (LayerParameter& parameter : inventory.take()) {
    ends.push_back(std::move(parameter.spec));
  }
  return ends;
}

std::vector<LayerParameter> counted_inventory(const ModelSpec& spec) {
  std::vector<LayerParameter> list;
  for (ParameterSpec& end : end_inventory(spec)) {
    list.push_back({std::move(end), 1});
  }
  const auto add_layers = [&](std::int64_t first, std::int64_t layers) {
    for (LayerParameter& parameter : layer_inventory(spec, first)) {
      parameter.copies *= layers;
      list.push_back(std::move(parameter));
    }
  };
  for (const bool moe : {false, true}) {
    std::int64_t first = -1;
    std::int64_t layers = 0;
    for (std::int64_t layer = spec.layers - 1; layer >= 0; --layer) {
      if (spec.is_moe(layer) == moe) {
        first = layer;
        ++layers;
      }
    }
    if (layers > 0) {
      add_layers(first, layers);
    }
  }
  if (spec.mtp_layers > 0) {
    add_layers(spec.layers, spec.mtp_layers);
  }
  return list;
}

}  // namespace ndmesh::model
