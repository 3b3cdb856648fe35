#include "ndmesh/cli/inspect_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "ndmesh/base/text.h"
#include "ndmesh/base/units.h"
#include "ndmesh/model/config.h"
#include "ndmesh/model/family.h"

namespace ndmesh::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr DType formats[] = {DType::bfloat16, DType::float32, DType::float64};

/// A parameter that layers have, once, with `*` for the layer and the expert.
struct Group {
  std::string name;
  model::ParameterSpec first;
  std::int64_t number = 0;

  std::int64_t elements() const { return number * first.elements(); }
};

std::string general_name(const model::LayerParameter& parameter) {
  std::string name = parameter.spec.name;
  const auto replace = [&](std::int64_t index) {
    const std::string number = fmt::format(".{}.", index);
    name.replace(name.find(number), number.size(), ".*.");
  };
  replace(parameter.spec.layer);
  if (parameter.spec.expert >= 0 && !parameter.spec.stacked) {
    replace(parameter.spec.expert);
  }
  return name;
}

/// In the order of the model; the same name with another shape is another group.
std::vector<Group> grouped_parameters(const model::ModelSpec& spec) {
  std::vector<Group> groups;
  const auto behind_layers = [](const Group& group) {
    return group.first.role != model::Role::embedding && group.first.role != model::Role::positions;
  };
  for (const model::ParameterSpec& parameter : spec.end_parameters()) {
    groups.push_back({parameter.name, parameter, 1});
  }
  const auto ends = std::find_if(groups.begin(), groups.end(), behind_layers);
  const std::vector<Group> behind(ends, groups.end());
  groups.erase(ends, groups.end());
  for (std::int64_t layer = 0; layer < spec.total_layers(); ++layer) {
    for (const model::LayerParameter& parameter : spec.layer_parameters(layer)) {
      const std::string name = general_name(parameter);
      const auto same = std::find_if(groups.begin(), groups.end(), [&](const Group& g) {
        return g.name == name && g.first.shape == parameter.spec.shape;
      });
      if (same == groups.end()) {
        groups.push_back({name, parameter.spec, parameter.copies});
      } else {
        same->number += parameter.copies;
      }
    }
  }
  groups.insert(groups.end(), behind.begin(), behind.end());
  return groups;
}

std::int64_t moe_layers(const model::ModelSpec& spec) {
  std::int64_t count = 0;
  for (std::int64_t layer = 0; layer < spec.layers; ++layer) {
    count += spec.is_moe(layer) ? 1 : 0;
  }
  return count;
}

/// Of the multi-token prediction layers.
std::int64_t mtp_parameters(const model::ModelSpec& spec) {
  std::int64_t count = 0;
  for (std::int64_t layer = spec.layers; layer < spec.total_layers(); ++layer) {
    for (const model::LayerParameter& parameter : spec.layer_parameters(layer)) {
      count += parameter.elements();
    }
  }
  return count;
}

Json experts_json(const model::ModelSpec& spec) {
  if (!spec.experts) {
    return nullptr;
  }
  return {{"count", spec.experts->count},
          {"per_token", spec.experts->per_token},
          {"ffn", spec.experts->ffn},
          {"shared_ffn", spec.experts->shared_ffn},
          {"layers", moe_layers(spec)}};
}

Json latent_json(const model::ModelSpec& spec) {
  if (!spec.latent) {
    return nullptr;
  }
  return {{"query_rank", spec.latent->query_rank},
          {"kv_rank", spec.latent->kv_rank},
          {"nope_dim", spec.latent->nope_dim},
          {"rope_dim", spec.latent->rope_dim},
          {"value_dim", spec.latent->value_dim}};
}

Json sizes_json(const model::ModelSpec& spec) {
  return {{"family", spec.family},
          {"vocab", spec.vocab},
          {"hidden", spec.hidden},
          {"layers", spec.layers},
          {"heads", spec.heads},
          {"kv_heads", spec.kv_heads},
          {"head_dim", spec.head_dim},
          {"ffn", spec.ffn},
          {"max_positions", spec.max_positions},
          {"sliding_window", spec.sliding_window ? Json(*spec.sliding_window) : Json(nullptr)},
          {"experts", experts_json(spec)},
          {"latent", latent_json(spec)},
          {"mtp_layers", spec.mtp_layers},
          {"tied", spec.tied},
          {"byte_tokens", spec.byte_tokens}};
}

Json model_json(const std::string& name, const model::ModelSpec& spec, std::int64_t seq_len) {
  Json groups = Json::array();
  for (const Group& group : grouped_parameters(spec)) {
    groups.push_back({{"name", group.name},
                      {"role", std::string(name_of(group.first.role))},
                      {"bias", group.first.bias},
                      {"shape", group.first.shape},
                      {"number", group.number},
                      {"elements", group.elements()}});
  }
  const std::int64_t count = spec.parameter_count();
  Json bytes;
  for (const DType dtype : formats) {
    bytes[std::string(name_of(dtype))] = count * bytes_of(dtype);
  }
  const model::FlopsPerToken flops = model::flops_per_token(spec, seq_len);
  return {{"name", name},
          {"model", sizes_json(spec)},
          {"estimated", spec.estimated()},
          {"parameter_count", count},
          {"active_parameter_count", spec.active_parameter_count()},
          {"mtp_parameter_count", mtp_parameters(spec)},
          {"not_run_because", model::unrunnable_reasons(spec)},
          {"parameters", groups},
          {"bytes", bytes},
          {"flops_per_token",
           {{"seq_len", seq_len},
            {"weights", flops.weights},
            {"attention", flops.attention},
            {"total", flops.total()}}}};
}

void print_experts(const model::ModelSpec& spec) {
  const model::Experts& experts = *spec.experts;
  fmt::print("{} experts of ffn {} in {} layers, {} for a token{}: {} parameters active\n", experts.count,
             experts.ffn, moe_layers(spec), experts.per_token,
             experts.shared_ffn > 0 ? fmt::format(", and a shared one of {}", experts.shared_ffn) : "",
             grouped(spec.active_parameter_count()));
}

void print_sizes(const std::string& name, const model::ModelSpec& spec) {
  fmt::print("{}: {}, {} parameters{}\n", name, spec.family, grouped(spec.parameter_count()),
             spec.estimated() ? " (only this size is known: the shape is estimated)" : "");
  fmt::print(
      "hidden {}, {} layers, {} heads of {} ({} for keys and values), ffn {}, vocabulary {}, positions {}\n",
      spec.hidden, spec.layers, spec.heads, spec.head_dim, spec.kv_heads, spec.ffn, spec.vocab,
      spec.max_positions);
  if (spec.experts) {
    print_experts(spec);
  }
  if (spec.latent) {
    fmt::print("latent attention: keys and values of rank {}, queries of rank {}, values of {}\n",
               spec.latent->kv_rank, spec.latent->query_rank, spec.latent->value_dim);
  }
  if (spec.mtp_layers > 0) {
    fmt::print("{} multi-token prediction layers with {} of the parameters\n", spec.mtp_layers,
               grouped(mtp_parameters(spec)));
  }
  fmt::print("head {} the input table{}{}\n", spec.tied ? "tied to" : "apart from",
             spec.sliding_window ? fmt::format(", sliding window {}{}", *spec.sliding_window,
                                               spec.windowed.empty() ? "" : " in some layers")
                                 : "",
             spec.byte_tokens ? ", tokens are bytes" : "");
  for (const std::string& reason : model::unrunnable_reasons(spec)) {
    fmt::print("{}\n", reason);
  }
  fmt::print("\n");
}

void print_groups(const model::ModelSpec& spec) {
  const std::vector<Group> groups = grouped_parameters(spec);
  std::size_t width = 0;
  for (const Group& group : groups) {
    width = std::max(width, group.name.size());
  }
  fmt::print("{:<{}} {:<17} {:<18} {:>6} {:>20}\n", "parameter", width, "role", "shape", "number",
             "elements");
  for (const Group& group : groups) {
    fmt::print("{:<{}} {:<17} {:<18} {:>6} {:>20}\n", group.name, width, name_of(group.first.role),
               fmt::format("[{}]", fmt::join(group.first.shape, ", ")), group.number,
               grouped(group.elements()));
  }
}

void print_totals(const model::ModelSpec& spec, std::int64_t seq_len) {
  const std::int64_t count = spec.parameter_count();
  fmt::print("\nweights alone:");
  for (const DType dtype : formats) {
    const std::int64_t bytes = count * bytes_of(dtype);
    fmt::print("  {} {} ({}B)", name_of(dtype), binary_bytes(bytes), scaled(static_cast<double>(bytes)));
  }
  const model::FlopsPerToken flops = model::flops_per_token(spec, seq_len);
  fmt::print(
      "\nFLOPs per token in training (6 per parameter that it meets in a product, causal attention at {} "
      "tokens):\n"
      "weights {}  attention {}  total {}\n",
      seq_len, scaled(flops.weights), scaled(flops.attention), scaled(flops.total()));
}

}  // namespace

void print_families(bool json) {
  const std::vector<std::string> run = model::runnable_families();
  std::vector<std::string> planned;
  for (const std::string& family : model::supported_families()) {
    if (std::find(run.begin(), run.end(), family) == run.end()) {
      planned.push_back(family);
    }
  }
  if (json) {
    fmt::print("{}\n", Json{{"run", run}, {"planned", planned}}.dump(2));
    return;
  }
  fmt::print("families (model_type of config.json) that run:  {}\nthat are planned only:  {}\n", join(run),
             join(planned));
}

void print_model(const std::string& name, const model::ModelSpec& model, std::int64_t seq_len, bool json) {
  if (json) {
    fmt::print("{}\n", model_json(name, model, seq_len).dump(2, ' ', true, Json::error_handler_t::replace));
    return;
  }
  print_sizes(name, model);
  print_groups(model);
  print_totals(model, seq_len);
}

}  // namespace ndmesh::cli
