#include <fmt/format.h>

#include <algorithm>

#include "ndmesh/base/error.h"
#include "ndmesh/base/integers.h"
#include "ndmesh/cluster/links.h"

namespace ndmesh::cluster {
namespace {

/// Devices of one scale-up domain. One that spans nodes takes as many as it can; the nodes are dealt evenly to the
/// fewest such domains (64 trays of at most 18: four racks of 16).
std::int64_t scale_up_domain(const Cluster& cluster) {
  const std::int64_t most = cluster.scale_up.devices;
  if (most <= cluster.devices_per_node) return most;
  const std::int64_t domains = ceil_div(cluster.nodes, most / cluster.devices_per_node);
  return ceil_div(cluster.nodes, domains) * cluster.devices_per_node;
}

bool crosses_numa(const Cluster& cluster) {
  return cluster.numa_nodes > 1 && cluster.numa_bandwidth > 0;
}

std::int64_t numa_domain(const Cluster& cluster) {
  return ceil_div(cluster.devices_per_node, cluster.numa_nodes);
}

/// Devices that reach each other without an uplink of a PCIe switch and without the link between NUMA nodes.
std::int64_t pcie_domain(const Cluster& cluster) {
  if (cluster.pcie.devices > 0) return cluster.pcie.devices;
  return crosses_numa(cluster) ? numa_domain(cluster) : cluster.devices_per_node;
}

/// Between PCIe domains: the devices below a switch share its one uplink, those of a NUMA node the link between them.
Level node_level(const Cluster& cluster) {
  Level node = cluster.pcie;
  node.name = "node";
  node.devices = cluster.devices_per_node;
  if (cluster.pcie.devices > 0) node.bandwidth /= static_cast<double>(cluster.pcie.devices);
  if (crosses_numa(cluster)) {
    const auto sharers = static_cast<double>(numa_domain(cluster));
    node.bandwidth = std::min(node.bandwidth, cluster.numa_bandwidth / sharers);
    node.pair_bandwidth = std::min(node.pair_bandwidth, cluster.numa_bandwidth);
  }
  return node;
}

/// What a device has of its node's NICs, when all send and when it sends alone; no more than its way to the host.
Level network_level(const Cluster& cluster) {
  const double share = static_cast<double>(cluster.nics) / static_cast<double>(cluster.devices_per_node);
  Level level;
  level.bandwidth = cluster.nic_bandwidth * share;
  level.pair_bandwidth = cluster.nic_bandwidth * std::max(1.0, share);
  if (const double most = cluster.device.host_bandwidth; most > 0) {
    level.bandwidth = std::min(level.bandwidth, most);
    level.pair_bandwidth = std::min(level.pair_bandwidth, most);
  }
  level.latency = cluster.nic_latency;
  return level;
}

/// Appends a level that reaches further than those before it.
void append(std::vector<Level>& levels, Level level, const Cluster& cluster) {
  level.devices = std::min(level.devices, cluster.devices());
  if (levels.empty() || level.devices > levels.back().devices) levels.push_back(std::move(level));
}

void append_network_levels(std::vector<Level>& levels, const Cluster& cluster) {
  Level level = network_level(cluster);
  for (const Switch& each : cluster.switches) {
    const bool is_last = &each == &cluster.switches.back();
    level.name = each.name;
    level.devices = is_last ? cluster.devices() : each.nodes * cluster.devices_per_node;
    level.bandwidth /= each.oversubscription;
    append(levels, level, cluster);
  }
}

void check_counts(const Cluster& cluster, Problems& problems) {
  if (cluster.nodes > max_devices / cluster.devices_per_node) {
    problems.add(fmt::format("nodes: {} nodes of {} devices are more than {} devices; at most {} nodes",
                             cluster.nodes, cluster.devices_per_node, max_devices,
                             max_devices / cluster.devices_per_node));
  }
  if (cluster.nodes > 1 && (cluster.nics == 0 || cluster.nic_bandwidth == 0)) {
    problems.add(fmt::format(
        "nics must be given: {} nodes, and the catalogue knows no usual NIC of {} (as in nics: {}x400G)",
        cluster.nodes, cluster.device.name, cluster.devices_per_node));
  }
}

/// One domain must lie whole inside the other.
bool nests(std::int64_t a, std::int64_t b) {
  return std::max(a, b) % std::min(a, b) == 0;
}

void check_node(const Cluster& cluster, Problems& problems) {
  const std::int64_t devices = cluster.devices_per_node;
  if (cluster.scale_up.devices > 1 && !nests(cluster.scale_up.devices, devices)) {
    problems.add(
        fmt::format("scale_up.devices is {}; allowed: a divisor or a multiple of devices_per_node, {}",
                    cluster.scale_up.devices, devices));
  }
  if (cluster.pcie.devices > 0 && devices % cluster.pcie.devices != 0) {
    problems.add(fmt::format("pcie.devices is {}; allowed: a divisor of devices_per_node, {}",
                             cluster.pcie.devices, devices));
  }
  if (crosses_numa(cluster) && devices % cluster.numa_nodes != 0) {
    problems.add(
        fmt::format("numa.nodes is {}; allowed with numa.bandwidth: a divisor of devices_per_node, {}",
                    cluster.numa_nodes, devices));
  }
}

/// Domains inside a node must not cut each other.
void check_nesting(const Cluster& cluster, Problems& problems) {
  const std::int64_t link = cluster.scale_up.devices;
  if (!nests(link, pcie_domain(cluster))) {
    problems.add(
        fmt::format("scale_up.devices is {}, which neither divides the {} devices of one PCIe {} nor is a "
                    "multiple of them",
                    link, pcie_domain(cluster), cluster.pcie.devices > 0 ? "switch" : "root"));
  }
  if (crosses_numa(cluster) && numa_domain(cluster) % pcie_domain(cluster) != 0) {
    problems.add(fmt::format("pcie.devices is {}; allowed: a divisor of the {} devices of a NUMA node",
                             cluster.pcie.devices, numa_domain(cluster)));
  }
}

/// The first `devices` of one node, spread evenly over its NUMA nodes.
void shrink_node(Cluster& cluster, std::int64_t devices) {
  const auto cut = [devices](std::int64_t& domain) { domain = std::min(domain, devices); };
  if (devices <= numa_domain(cluster)) cluster.numa_bandwidth = 0;
  if (cluster.scale_up.devices <= cluster.devices_per_node) cut(cluster.scale_up.devices);
  cut(cluster.pcie.devices);
  cluster.devices_per_node = devices;
}

/// Switches that lie whole inside the cluster nest in each other and around the scale-up domains.
void check_switches(const Cluster& cluster, Problems& problems) {
  const std::int64_t domain = scale_up_domain(cluster);
  std::int64_t inner = std::max<std::int64_t>(1, domain / cluster.devices_per_node);
  for (std::size_t i = 0; i + 1 < cluster.switches.size(); ++i) {
    const Switch& each = cluster.switches[i];
    if (each.nodes >= cluster.nodes) break;
    if (each.nodes <= inner * (i > 0 ? 1 : 0) || each.nodes % inner != 0) {
      problems.add(fmt::format("switches[{}].nodes is {}; allowed: a multiple of the {} nodes of {}", i,
                               each.nodes, inner, i > 0 ? "the level below" : "one scale-up domain"));
      return;
    }
    inner = each.nodes;
  }
}

}  // namespace

std::vector<std::string> link_problems(const Cluster& cluster) {
  Problems problems;
  check_counts(cluster, problems);
  check_node(cluster, problems);
  if (problems.empty()) {
    check_nesting(cluster, problems);
    check_switches(cluster, problems);
  }
  return problems.list();
}

std::vector<Level> levels_of(const Cluster& cluster) {
  std::vector<Level> levels;
  if (cluster.scale_up.devices > 1 || (cluster.devices() == 1 && cluster.scale_up.bandwidth > 0)) {
    Level link = cluster.scale_up;
    link.devices = scale_up_domain(cluster);
    append(levels, link, cluster);
  }
  if (cluster.devices_per_node > 1 || cluster.devices() == 1) {
    Level pcie = cluster.pcie;
    pcie.devices = pcie_domain(cluster);
    append(levels, pcie, cluster);
    append(levels, node_level(cluster), cluster);
  }
  append_network_levels(levels, cluster);
  return levels;
}

Cluster resized(const Cluster& cluster, std::int64_t devices) {
  const std::int64_t whole = cluster.devices_per_node;
  if (devices < 1 || devices > max_devices || (devices > whole && devices % whole != 0)) {
    throw RequestError(fmt::format("{} devices of {}; allowed: 1 to {}, or a multiple of {} up to {}",
                                   devices, cluster.name, whole, whole, max_devices / whole * whole));
  }
  Cluster result = cluster;
  result.nodes = std::max<std::int64_t>(1, devices / whole);
  if (devices < whole) {
    shrink_node(result, devices);
  } else {
    Problems problems;
    problems.add_all(link_problems(result));
    problems.raise();
  }
  result.levels = levels_of(result);
  return result;
}

}  // namespace ndmesh::cluster
