#include "ndmesh/cli/inspect_cluster.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "ndmesh/base/error.h"
#include "ndmesh/base/file.h"
#include "ndmesh/base/text.h"
#include "ndmesh/base/units.h"
#include "ndmesh/base/yaml.h"
#include "ndmesh/cli/source.h"

namespace ndmesh::cli {
namespace {

using Json = nlohmann::ordered_json;
using cluster::Cluster;
using cluster::Device;
using cluster::Level;

constexpr std::int64_t most_file_bytes = 1 << 20;
constexpr std::int64_t most_in_a_row = 16;  // devices of a node that a line of the box shows

// ---- reading

/// Whether a file holds a job rather than a cluster.
bool is_job_file(const std::string& name) {
  if (!std::filesystem::is_regular_file(name)) return false;
  const YamlNode root = parse_yaml(read_file(name, most_file_bytes), name);
  return std::any_of(root.entries.begin(), root.entries.end(),
                     [](const auto& entry) { return entry.first == "cluster" || entry.first == "model"; });
}

bool is_override(const std::string& word) {
  return word.find('=') != std::string::npos;
}

// ---- JSON

/// A figure, or null when it is not known.
template <typename Value>
Json known(Value value) {
  return value > 0 ? Json(value) : Json(nullptr);
}

Json device_json(const Device& device) {
  Json json = {{"name", device.name},
               {"like", device.like.empty() ? Json(nullptr) : Json(device.like)},
               {"architecture", device.architecture},
               {"bf16_flops", known(device.bf16_flops)},
               {"fp32_flops", known(device.fp32_flops)},
               {"fp8_flops", known(device.fp8_flops)},
               {"fp4_flops", known(device.fp4_flops)},
               {"memory_bytes", device.memory_bytes},
               {"memory_bandwidth", known(device.memory_bandwidth)},
               {"host_bandwidth", known(device.host_bandwidth)},
               {"matmul_efficiency", known(device.matmul_efficiency)},
               {"bus_bandwidth", known(device.bus_bandwidth)}};
  json["catalogue"] = Json::array();
  if (device.like.empty()) return json;
  for (const cluster::Figure& figure : cluster::device_figures(device.like))
    json["catalogue"].push_back(
        {{"figure", figure.name}, {"value", figure.value}, {"source", figure.source}});
  return json;
}

std::int64_t domains_of(const Cluster& cluster, const Level& level) {
  return (cluster.devices() + level.devices - 1) / level.devices;
}

Json levels_json(const Cluster& cluster) {
  Json levels = Json::array();
  for (const Level& level : cluster.levels) {
    levels.push_back({{"name", level.name},
                      {"devices", level.devices},
                      {"domains", domains_of(cluster, level)},
                      {"bandwidth", known(level.bandwidth)},
                      {"pair_bandwidth", known(level.pair_bandwidth)},
                      {"latency", known(level.latency)}});
  }
  return levels;
}

Json cluster_json(const Cluster& cluster) {
  return {{"name", cluster.name},
          {"devices", cluster.devices()},
          {"nodes", cluster.nodes},
          {"devices_per_node", cluster.devices_per_node},
          {"device", device_json(cluster.device)},
          {"usable_bytes", cluster.usable_bytes},
          {"host_memory_bytes", known(cluster.host_memory_bytes)},
          {"numa_nodes", cluster.numa_nodes},
          {"nics", cluster.nics},
          {"nic_bandwidth", known(cluster.nic_bandwidth)},
          {"storage_bandwidth", known(cluster.storage_bandwidth)},
          {"input_rate", known(cluster.input_rate)},
          {"levels", levels_json(cluster)},
          {"notes", cluster.notes}};
}

// ---- text

std::string rate(double bytes_per_second) {
  return bytes_per_second > 0 ? fmt::format("{:.4g} GB/s", bytes_per_second / 1e9) : "not known";
}

std::string microseconds(double seconds) {
  return seconds > 0 ? fmt::format("{:.3g} us", seconds * 1e6) : "not known";
}

std::string peaks(const Device& device) {
  std::vector<std::string> parts;
  const auto add = [&](const char* name, double flops) {
    if (flops > 0) parts.push_back(fmt::format("{} {:.6g}", name, flops / 1e12));
  };
  add("bfloat16", device.bf16_flops);
  add("float32", device.fp32_flops);
  add("8-bit", device.fp8_flops);
  add("4-bit", device.fp4_flops);
  return parts.empty() ? "not known" : join(parts) + " TFLOP/s, dense";
}

void print_device(const Cluster& cluster) {
  const Device& device = cluster.device;
  const std::string name =
      device.architecture.empty() ? device.name : fmt::format("{}, {}", device.name, device.architecture);
  fmt::print("{}: {} devices, {} of {}\n\n", cluster.name, grouped(cluster.devices()),
             cluster.nodes == 1 ? "one node" : grouped(cluster.nodes) + " nodes", cluster.devices_per_node);
  fmt::print("device     {}\n", name);
  fmt::print("products   {}\n", peaks(device));
  if (device.matmul_efficiency > 0)
    fmt::print("           {:.0f} % of bfloat16 in large ones, measured\n", device.matmul_efficiency * 100);
  fmt::print("memory     {}, {} of it usable; {}\n", binary_bytes(device.memory_bytes),
             binary_bytes(cluster.usable_bytes), rate(device.memory_bandwidth));
  if (device.host_bandwidth > 0) fmt::print("to host    {} each way\n", rate(device.host_bandwidth));
}

/// "[0]=[1] [2]=[3]": devices `first` up to `end` of a node; `=` joins those of one scale-up domain.
std::string devices_text(const Cluster& cluster, std::int64_t first, std::int64_t end) {
  const auto joins = [&](std::int64_t left) {
    const std::int64_t domain = cluster.scale_up.devices;
    return domain > 1 && left >= 0 && left + 1 < cluster.devices_per_node &&
           left / domain == (left + 1) / domain;
  };
  std::string text = joins(first - 1) ? "=" : " ";
  for (std::int64_t device = first; device < end; ++device)
    text += fmt::format("[{}]{}", device, joins(device) ? "=" : " ");
  return text;
}

/// Rows of devices, NUMA node by NUMA node.
std::vector<std::string> device_rows(const Cluster& cluster) {
  std::vector<std::string> rows;
  const std::int64_t devices = cluster.devices_per_node;
  const std::int64_t attached = (devices + cluster.numa_nodes - 1) / cluster.numa_nodes;
  for (std::int64_t first = 0; first < devices;) {
    const std::int64_t numa = first / attached;
    const std::int64_t end = std::min({devices, (numa + 1) * attached, first + most_in_a_row});
    const std::string name = first % attached == 0 ? fmt::format("numa {}", numa) : "";
    rows.push_back(
        fmt::format("{:<8}{}", cluster.numa_nodes > 1 ? name : "", devices_text(cluster, first, end)));
    first = end;
  }
  return rows;
}

std::string scale_up_row(const Cluster& cluster) {
  const Level& link = cluster.scale_up;
  const std::string reach = link.devices > cluster.devices_per_node
                                ? fmt::format(", up to {} nodes", link.devices / cluster.devices_per_node)
                                : "";
  const std::string rates = link.bandwidth > 0 ? fmt::format("{} a device, {} a pair", rate(link.bandwidth),
                                                             rate(link.pair_bandwidth))
                                               : rate(0);
  return fmt::format("=        {}: {}{}", link.name, rates, reach);
}

std::vector<std::string> node_rows(const Cluster& cluster) {
  std::vector<std::string> rows = device_rows(cluster);
  rows.emplace_back();
  if (cluster.scale_up.devices > 1) rows.push_back(scale_up_row(cluster));
  if (cluster.pcie.bandwidth > 0) {
    const std::string below =
        cluster.pcie.devices > 0 ? fmt::format(", {} below a switch", cluster.pcie.devices) : "";
    rows.push_back(fmt::format("pcie     {} a device{}", rate(cluster.pcie.bandwidth), below));
  }
  if (cluster.numa_bandwidth > 0) {
    rows.push_back(fmt::format("numa     {} between NUMA nodes", rate(cluster.numa_bandwidth)));
  }
  if (cluster.nics > 0)
    rows.push_back(fmt::format("nics     {} of {}", cluster.nics, rate(cluster.nic_bandwidth)));
  if (cluster.host_memory_bytes > 0) {
    rows.push_back(fmt::format("host     {} of memory", binary_bytes(cluster.host_memory_bytes)));
  }
  return rows;
}

void print_node(const Cluster& cluster) {
  const std::vector<std::string> rows = node_rows(cluster);
  std::size_t width = 0;
  for (const std::string& row : rows) width = std::max(width, row.size());
  const std::string edge = "+" + std::string(width + 2, '-') + "+";
  fmt::print("\n{}\n{}\n",
             cluster.nodes == 1 ? "the node" : fmt::format("each of {} nodes", grouped(cluster.nodes)), edge);
  for (const std::string& row : rows) fmt::print("| {:<{}} |\n", row, width);
  fmt::print("{}\n", edge);
}

void print_levels(const Cluster& cluster) {
  fmt::print("\n{:<12}{:>16}{:>10}{:>16}{:>16}{:>12}\n", "level", "devices/domain", "domains", "a device",
             "a pair", "a hop");
  for (const Level& level : cluster.levels) {
    fmt::print("{:<12}{:>16}{:>10}{:>16}{:>16}{:>12}\n", level.name, grouped(level.devices),
               grouped(domains_of(cluster, level)), rate(level.bandwidth), rate(level.pair_bandwidth),
               microseconds(level.latency));
  }
  if (cluster.storage_bandwidth > 0)
    fmt::print("\nstorage    {} of the whole cluster\n", rate(cluster.storage_bandwidth));
  if (cluster.input_rate > 0)
    fmt::print("input      {} tokens/s to the whole cluster\n", scaled(cluster.input_rate));
}

}  // namespace

Cluster cluster_of(const std::vector<std::string>& words) {
  std::vector<std::string> names;
  std::vector<std::string> overrides;
  for (const std::string& word : words) (is_override(word) ? overrides : names).push_back(word);
  if (names.size() > 1) {
    throw RequestError("one SOURCE is inspected at a time, not " + join(names) +
                       "; an override has the form cluster.KEY=VALUE");
  }
  if (names.empty() && overrides.empty()) return cluster::detect_cluster();
  const bool is_job = !names.empty() && is_job_file(names.front());
  if (!names.empty() && !is_job) overrides.insert(overrides.begin(), "cluster=" + names.front());
  const job::Job job = is_job ? job::read_job(names.front(), overrides) : job::parse_job("", "", overrides);
  return cluster_of(job);
}

void print_cluster(const Cluster& cluster, bool json) {
  if (json) {
    fmt::print("{}\n", cluster_json(cluster).dump(2));
    return;
  }
  print_device(cluster);
  print_node(cluster);
  print_levels(cluster);
  if (!cluster.notes.empty()) fmt::print("\n{}\n", fmt::join(cluster.notes, "\n"));
}

}  // namespace ndmesh::cli
