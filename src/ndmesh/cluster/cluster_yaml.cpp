#include <fmt/format.h>

#include <algorithm>

#include "ndmesh/base/text.h"
#include "ndmesh/base/yaml_values.h"
#include "ndmesh/cluster/cluster.h"
#include "ndmesh/cluster/quantity.h"

namespace ndmesh::cluster {
namespace {

/// Lines of a mapping; figures that are not known (0) are left out.
class Lines {
 public:
  explicit Lines(std::string indent = "") : indent_(std::move(indent)) {}

  void add(std::string_view key, const std::string& value) {
    text_ += fmt::format("{}{}: {}\n", indent_, key, value);
  }
  void add(std::string_view key, double value, Quantity quantity) {
    if (value > 0) add(key, quantity_text(value, quantity));
  }
  void add(std::string_view key, std::int64_t value, Quantity quantity) {
    add(key, static_cast<double>(value), quantity);
  }
  void add_count(std::string_view key, std::int64_t value) {
    if (value > 0) add(key, yaml_of(value));
  }
  void open(std::string_view key, const Lines& inner) {
    if (!inner.text_.empty()) text_ += fmt::format("{}{}:\n{}", indent_, key, inner.text_);
  }
  const std::string& text() const { return text_; }

 private:
  std::string indent_;
  std::string text_;
};

bool is_known(const std::string& device_name) {
  const std::vector<std::string> names = device_names();
  return std::find(names.begin(), names.end(), device_name) != names.end();
}

/// Figures of the device that are not those of `base`.
Lines figures_of(const Device& device, const Device& base) {
  Lines lines("  ");
  if (!device.like.empty()) lines.add("like", yaml_of(device.like));
  if (device.name != base.name) lines.add("name", yaml_of(device.name));
  if (device.architecture != base.architecture) lines.add("architecture", yaml_of(device.architecture));
  const auto add = [&](std::string_view key, double Device::*figure, Quantity quantity) {
    if (device.*figure != base.*figure) lines.add(key, device.*figure, quantity);
  };
  add("bf16_flops", &Device::bf16_flops, Quantity::flops);
  add("fp32_flops", &Device::fp32_flops, Quantity::flops);
  add("fp8_flops", &Device::fp8_flops, Quantity::flops);
  add("fp4_flops", &Device::fp4_flops, Quantity::flops);
  if (device.memory_bytes != base.memory_bytes) lines.add("memory", device.memory_bytes, Quantity::memory);
  add("memory_bandwidth", &Device::memory_bandwidth, Quantity::bandwidth);
  add("host_bandwidth", &Device::host_bandwidth, Quantity::bandwidth);
  if (device.matmul_efficiency != base.matmul_efficiency)
    lines.add("matmul_efficiency", yaml_of(device.matmul_efficiency));
  add("bus_bandwidth", &Device::bus_bandwidth, Quantity::bandwidth);
  return lines;
}

void add_device(Lines& lines, const Device& written) {
  const Device base = is_known(written.like) ? device(written.like) : Device();
  if (written == base) {
    lines.add("device", yaml_of(written.name));
  } else {
    lines.open("device", figures_of(written, base));
  }
}

void add_links(Lines& lines, const Cluster& cluster) {
  Lines link("  ");
  link.add("name", yaml_of(cluster.scale_up.name));
  link.add_count("devices", cluster.scale_up.devices);
  link.add("bandwidth", cluster.scale_up.bandwidth, Quantity::bandwidth);
  link.add("pair_bandwidth", cluster.scale_up.pair_bandwidth, Quantity::bandwidth);
  link.add("latency", cluster.scale_up.latency, Quantity::time);
  lines.open("scale_up", link);

  Lines pcie("  ");
  pcie.add_count("devices", cluster.pcie.devices);
  pcie.add("bandwidth", cluster.pcie.bandwidth, Quantity::bandwidth);
  pcie.add("latency", cluster.pcie.latency, Quantity::time);
  lines.open("pcie", pcie);

  Lines numa("  ");
  numa.add_count("nodes", cluster.numa_nodes);
  numa.add("bandwidth", cluster.numa_bandwidth, Quantity::bandwidth);
  lines.open("numa", numa);
}

void add_network(Lines& lines, const Cluster& cluster) {
  Lines nics("  ");
  nics.add_count("count", cluster.nics);
  nics.add("rate", cluster.nic_bandwidth, Quantity::bandwidth);
  nics.add("latency", cluster.nic_latency, Quantity::time);
  lines.open("nics", nics);

  std::vector<std::string> switches;
  for (const Switch& each : cluster.switches) {
    const std::string nodes = each.nodes > 0 ? fmt::format(", nodes: {}", each.nodes) : "";
    switches.push_back(fmt::format("{{name: {}{}, oversubscription: {}}}", yaml_of(each.name), nodes,
                                   yaml_of(each.oversubscription)));
  }
  lines.add("switches", "[" + join(switches) + "]");
}

}  // namespace

std::string cluster_yaml(const Cluster& cluster) {
  Lines lines;
  lines.add("name", yaml_of(cluster.name));
  lines.add_count("nodes", cluster.nodes);
  lines.add_count("devices_per_node", cluster.devices_per_node);
  add_device(lines, cluster.device);
  lines.add("usable_memory", cluster.usable_bytes, Quantity::memory);
  lines.add("host_memory", cluster.host_memory_bytes, Quantity::memory);
  add_links(lines, cluster);
  add_network(lines, cluster);
  lines.add("storage", cluster.storage_bandwidth, Quantity::bandwidth);
  lines.add("input_rate", cluster.input_rate, Quantity::count);
  return lines.text();
}

}  // namespace ndmesh::cluster
