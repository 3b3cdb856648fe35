#include "ndmesh/plan/measured/measured_setup.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "ndmesh/base/text.h"

namespace ndmesh::plan {
namespace {

constexpr std::int64_t usual_node = 8;

struct Nodes {
  std::int64_t count = 1;
  std::int64_t devices = 1;
};

std::optional<std::int64_t> whole_number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1) return std::nullopt;
  return value;
}

/// Nodes and devices of each; a product that is not `gpus` is a problem.
Nodes nodes_of(const MeasuredRow& row) {
  const std::int64_t gpus = row.needed("gpus");
  if (!row.has("nodes_gpus_per_node")) {
    if (gpus > usual_node && gpus % usual_node != 0) {
      row.problems().add(fmt::format("gpus {} are no whole nodes of {}", gpus, usual_node));
    }
    return gpus <= usual_node ? Nodes{1, gpus} : Nodes{gpus / usual_node, usual_node};
  }
  const std::vector<std::string> parts = split(row.text("nodes_gpus_per_node"), 'x');
  const auto count = whole_number(parts.front());
  const auto devices = whole_number(parts.back());
  if (parts.size() != 2 || !count || !devices || *devices > gpus || *count != gpus / *devices ||
      gpus % *devices != 0) {
    row.problems().add(fmt::format("nodes_gpus_per_node is {}, gpus is {}: not the same number",
                                   shown(row.text("nodes_gpus_per_node")), gpus));
    return {};
  }
  return {*count, *devices};
}

/// The name without a remark in brackets.
std::string device_name(std::string_view gpu) {
  const std::string_view name = gpu.substr(0, gpu.find(" ("));
  return std::string(name);
}

bool is_known_device(const std::string& name) {
  try {
    cluster::device(name);
    return true;
  } catch (const RequestError&) {
    return false;
  }
}

/// "8x HDR 200Gb/s": the count before an x, and the Gbit/s of one.
struct Rate {
  std::int64_t count = 0;  ///< 0: not said
  std::int64_t gigabits = 0;
};

/// The first number that Gb or Gbps follows, and a count "Nx" before it in the same part (between ; and ,).
Rate rate_in(std::string_view part) {
  Rate rate;
  for (std::size_t i = 0; i < part.size(); ++i) {
    if (!is_digit(part[i])) continue;
    const std::size_t start = i;
    while (i < part.size() && is_digit(part[i])) ++i;
    const auto value = whole_number(part.substr(start, i - start));
    if (!value) continue;
    const std::string_view rest = part.substr(i);
    if (rest.starts_with("x")) rate.count = *value;
    if (rest.starts_with("Gb") || rest.starts_with(" Gb")) {
      rate.gigabits = *value;
      return rate;
    }
  }
  return rate;
}

struct RuntimeOf {
  std::string_view word;  ///< in group or source, lower case
  std::string_view runtime;
};

/// In order: the first word that is found decides.
constexpr std::array runtimes = {
    RuntimeOf{"xtuner-megatron", "megatron"}, RuntimeOf{"primus", "megatron"},
    RuntimeOf{"torchtitan", "torchtitan"},    RuntimeOf{"prime-rl", "torchtitan"},
    RuntimeOf{"automodel", "torchtitan"},     RuntimeOf{"mosaic", "torchtitan"},
    RuntimeOf{"llm-foundry", "torchtitan"},   RuntimeOf{"fsdp", "torchtitan"},
    RuntimeOf{"bloom", "deepspeed"},          RuntimeOf{"aleph-alpha", "deepspeed"},
    RuntimeOf{"xtuner", "deepspeed"},         RuntimeOf{"internevo", "deepspeed"},
    RuntimeOf{"deepspeed", "deepspeed"},      RuntimeOf{"colossal", "deepspeed"},
    RuntimeOf{"accelerate", "accelerate"},    RuntimeOf{"llmq", "ndmesh"}};

}  // namespace

std::string nics_of(std::string_view interconnect, std::int64_t devices_per_node) {
  std::string_view rest = interconnect;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find(';'), rest.size());
    const std::string_view part = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (contains(part, "Omni-Path"))
      return fmt::format("{}x100G", rate_in(part).count > 0 ? rate_in(part).count : 4);
    const Rate rate = rate_in(part);
    if (rate.gigabits == 0) continue;
    if (contains(part, "per GPU")) return fmt::format("{}x{}G", devices_per_node, rate.gigabits);
    if (rate.count > 0) return fmt::format("{}x{}G", rate.count, rate.gigabits);
    return fmt::format("1x{}G", rate.gigabits);
  }
  return {};
}

cluster::Cluster measured_cluster(const MeasuredRow& row) {
  const Nodes nodes = nodes_of(row);
  if (!row.has("gpu")) {
    row.problems().add("gpu is missing");
    return {};
  }
  const std::string name = device_name(row.text("gpu"));
  const std::string nics = nics_of(row.text("interconnect"), nodes.devices);
  std::string yaml = fmt::format("{{nodes: {}, node: \"{}x{}\"", nodes.count, nodes.devices, name);
  if (nodes.count > 1 && !nics.empty()) yaml += ", nics: " + nics;
  if (!is_known_device(name)) {  // it could also break the mapping
    row.problems().add(fmt::format("gpu {} is no device of the catalogue", shown(name)));
    return {};
  }
  try {
    return cluster::parse_cluster(yaml + "}", "cluster");
  } catch (const RequestError& error) {
    row.problems().add_all(error.problems());
    return {};
  }
}

std::string measured_runtime(const MeasuredRow& row) {
  const std::string group = lower(row.text("group"));
  const std::string text = group.empty() || group == "papers" ? lower(row.text("source")) : group;
  if (group == "sc21-table2" && row.text("zero_stage") == "3") return "deepspeed";
  for (const RuntimeOf& entry : runtimes) {
    if (contains(text, entry.word)) return std::string(entry.runtime);
  }
  return "megatron";
}

Precision measured_precision(const MeasuredRow& row) {
  const std::string name = lower(row.text("precision"));
  if (contains(name, "fp4")) row.problems().add("products in 4 bits are not modelled");
  Precision precision;
  precision.fp8_products = contains(name, "fp8");
  precision.bf16_states =
      contains(row.text("optimizer"), "bf16 moments") || row.noted("reduced-precision optimizer moments");
  return precision;
}

std::int64_t measured_loss_chunk(const MeasuredRow& row, std::int64_t tokens) {
  constexpr std::int64_t usual_chunks = 8;
  const std::string notes = lower(row.text("notes"));
  std::int64_t chunks = number_behind(notes, "lmhead-chunks=").value_or(1);
  if (row.noted("chunked cross entropy")) chunks = usual_chunks;
  if (row.noted("avoids full logits")) return std::min<std::int64_t>(2048, tokens);  // prime-rl's fused head
  return chunks > 1 ? std::max<std::int64_t>(1, tokens / chunks) : 0;
}

}  // namespace ndmesh::plan
