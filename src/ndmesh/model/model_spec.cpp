#include "ndmesh/model/model_spec.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>

#include "ndmesh/model/inventory.h"
#include "ndmesh/model/parameter_names.h"

namespace ndmesh::model {
namespace {

constexpr std::array role_names = std::to_array<std::string_view>({"embedding",
                                                                   "query",
                                                                   "key",
                                                                   "value",
                                                                   "attention_output",
                                                                   "gate",
                                                                   "up",
                                                                   "down",
                                                                   "norm",
                                                                   "head_norm",
                                                                   "head",
                                                                   "positions",
                                                                   "fused_qkv",
                                                                   "fused_gate_up",
                                                                   "latent_down",
                                                                   "latent_up",
                                                                   "router",
                                                                   "expert_gate",
                                                                   "expert_up",
                                                                   "expert_gate_up",
                                                                   "expert_down",
                                                                   "sinks",
                                                                   "mtp_projection",
                                                                   "unspecified"});
static_assert(role_names.size() == static_cast<std::size_t>(Role::unspecified) + 1);

/// The same parameter of another expert.
ParameterSpec of_expert(const ParameterSpec& first, std::string_view experts, std::int64_t expert) {
  ParameterSpec parameter = first;
  const std::size_t number = first.name.find(experts) + experts.size();
  parameter.name.replace(number, 1, std::to_string(expert));
  parameter.expert = expert;
  return parameter;
}

/// Appends a layer, expert by expert.
void append_layer(const ModelSpec& spec, std::int64_t layer, std::vector<ParameterSpec>& list) {
  const std::vector<LayerParameter> all = spec.layer_parameters(layer);
  const std::string_view experts = names_of(spec.family).experts;
  for (auto at = all.begin(); at != all.end();) {
    if (at->copies == 1) {
      list.push_back((at++)->spec);
      continue;
    }
    const auto end = std::find_if(at, all.end(), [](const LayerParameter& p) { return p.copies == 1; });
    for (std::int64_t expert = 0; expert < at->copies; ++expert) {
      std::for_each(at, end,
                    [&](const LayerParameter& p) { list.push_back(of_expert(p.spec, experts, expert)); });
    }
    at = end;
  }
}

}  // namespace

std::string_view name_of(Role role) {
  return role_names[static_cast<std::size_t>(role)];
}

bool is_expert(Role role) {
  return role == Role::expert_gate || role == Role::expert_up || role == Role::expert_gate_up ||
         role == Role::expert_down;
}

std::int64_t ParameterSpec::elements() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::vector<LayerParameter> ModelSpec::layer_parameters(std::int64_t layer) const {
  return layer_inventory(*this, layer);
}

std::vector<ParameterSpec> ModelSpec::end_parameters() const {
  return end_inventory(*this);
}

std::vector<ParameterSpec> ModelSpec::parameters() const {
  const std::vector<ParameterSpec> ends = end_parameters();
  const auto behind = std::find_if(ends.begin(), ends.end(), [](const ParameterSpec& p) {
    return p.role != Role::embedding && p.role != Role::positions;
  });
  std::vector<ParameterSpec> list(ends.begin(), behind);
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    append_layer(*this, layer, list);
  }
  list.insert(list.end(), behind, ends.end());
  for (std::int64_t layer = layers; layer < total_layers(); ++layer) {
    append_layer(*this, layer, list);
  }
  return list;
}

std::int64_t ModelSpec::parameter_count() const {
  std::int64_t count = 0;
  for (const LayerParameter& parameter : counted_inventory(*this)) {
    count += parameter.elements();
  }
  return count;
}

std::int64_t ModelSpec::active_parameter_count() const {
  std::int64_t count = 0;
  for (const LayerParameter& parameter : counted_inventory(*this)) {
    const std::int64_t elements = parameter.elements();
    count += is_expert(parameter.spec.role) ? elements / experts->count * experts->per_token : elements;
  }
  return count;
}

double approximate_parameter_count(const ModelSpec& spec) {
  double count = 0;
  for (const LayerParameter& parameter : counted_inventory(spec)) {
    count += static_cast<double>(parameter.spec.elements()) * static_cast<double>(parameter.copies);
  }
  return count;
}

bool ModelSpec::is_moe(std::int64_t layer) const {
  return experts && (experts->layers.empty() ||
                     experts->layers.at(static_cast<std::size_t>(std::min(layer, layers - 1))));
}

bool ModelSpec::is_windowed(std::int64_t layer) const {
  return sliding_window &&
         (windowed.empty() || windowed.at(static_cast<std::size_t>(std::min(layer, layers - 1))));
}

double ModelSpec::attention_scale() const {
  return attention_multiplier.value_or(
      1.0 / std::sqrt(query_pre_attn_scalar.value_or(static_cast<double>(head_dim))));
}

std::int64_t ModelSpec::rotary_dim() const {
  return static_cast<std::int64_t>(static_cast<double>(head_dim) * rotary_factor);
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
