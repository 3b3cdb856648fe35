#include "ndmesh/cli/inspect_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "ndmesh/base/units.h"
#include "ndmesh/model/config.h"

namespace ndmesh::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr DType formats[] = {DType::bfloat16, DType::float32, DType::float64};

/// A parameter that every layer has, once, with `*` for the layer.
struct Group {
  std::string name;
  model::ParameterSpec first;
  std::int64_t number = 0;

  std::int64_t elements() const { return number * first.elements(); }
};

std::string without_layer(const model::ParameterSpec& parameter) {
  std::string name = parameter.name;
  if (parameter.layer >= 0) {
    const std::string number = fmt::format(".{}.", parameter.layer);
    name.replace(name.find(number), number.size(), ".*.");
  }
  return name;
}

std::vector<Group> grouped_parameters(const model::ModelSpec& spec) {
  std::vector<Group> groups;
  for (const model::ParameterSpec& parameter : spec.parameters()) {
    const std::string name = without_layer(parameter);
    const auto same =
        std::find_if(groups.begin(), groups.end(), [&](const Group& g) { return g.name == name; });
    if (same == groups.end()) {
      groups.push_back({name, parameter, 1});
    } else {
      ++same->number;
    }
  }
  return groups;
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
          {"parameter_count", count},
          {"parameters", groups},
          {"bytes", bytes},
          {"flops_per_token",
           {{"seq_len", seq_len},
            {"weights", flops.weights},
            {"attention", flops.attention},
            {"total", flops.total()}}}};
}

void print_sizes(const std::string& name, const model::ModelSpec& spec) {
  fmt::print("{}: {}, {} parameters\n", name, spec.family, grouped(spec.parameter_count()));
  fmt::print(
      "hidden {}, {} layers, {} heads of {} ({} for keys and values), ffn {}, vocabulary {}, positions {}\n",
      spec.hidden, spec.layers, spec.heads, spec.head_dim, spec.kv_heads, spec.ffn, spec.vocab,
      spec.max_positions);
  fmt::print("head {} the input table{}{}\n\n", spec.tied ? "tied to" : "apart from",
             spec.sliding_window ? fmt::format(", sliding window {}", *spec.sliding_window) : "",
             spec.byte_tokens ? ", tokens are bytes" : "");
}

void print_groups(const model::ModelSpec& spec) {
  fmt::print("{:<48} {:<17} {:<18} {:>6} {:>20}\n", "parameter", "role", "shape", "number", "elements");
  for (const Group& group : grouped_parameters(spec)) {
    fmt::print("{:<48} {:<17} {:<18} {:>6} {:>20}\n", group.name, name_of(group.first.role),
               fmt::format("[{}]", fmt::join(group.first.shape, ", ")), group.number,
               grouped(group.elements()));
  }
}

void print_totals(const model::ModelSpec& spec, std::int64_t seq_len) {
  const std::int64_t count = spec.parameter_count();
  fmt::print("\nweights alone:");
  for (const DType dtype : formats) {
    fmt::print("  {} {}", name_of(dtype), binary_bytes(count * bytes_of(dtype)));
  }
  const model::FlopsPerToken flops = model::flops_per_token(spec, seq_len);
  fmt::print(
      "\nFLOPs per token in training (6 per parameter of a product, causal attention at {} tokens):\n"
      "weights {}  attention {}  total {}\n",
      seq_len, scaled(flops.weights), scaled(flops.attention), scaled(flops.total()));
}

}  // namespace

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
