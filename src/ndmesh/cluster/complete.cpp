#include <fmt/format.h>

#include <algorithm>

#include "ndmesh/base/units.h"
#include "ndmesh/cluster/draft.h"
#include "ndmesh/cluster/links.h"
#include "ndmesh/cluster/quantity.h"

namespace ndmesh::cluster {
namespace {

void check_memory(const Draft& draft, Problems& problems) {
  if (!draft.device || !draft.usable_bytes || *draft.usable_bytes <= draft.device->memory_bytes) return;
  problems.add(fmt::format("usable_memory is {}; allowed: at most the {} of {}",
                           binary_bytes(*draft.usable_bytes), binary_bytes(draft.device->memory_bytes),
                           draft.device->name));
}

/// More devices in a node than their link joins is nearly always a count of devices taken for one of a node.
void check_count(const Draft& draft, Problems& problems) {
  if (!draft.device || !draft.devices_per_node || draft.link_devices) return;
  const Level& link = draft.device->scale_up;
  const std::int64_t devices = *draft.devices_per_node;
  if (draft.device->link_reach == LinkReach::bridge || link.devices == 1 || devices <= link.devices) return;
  const std::string shape = fmt::format("{}x{}", link.devices, draft.device->name);
  const std::string fix = devices % link.devices == 0 && !draft.nodes
                              ? fmt::format("{}x{}", devices / link.devices, shape)
                              : "NODESx" + shape;
  problems.add(
      fmt::format("{} devices of {} in one node: {} joins at most {}; write {} for several nodes, or give "
                  "scale_up.devices",
                  devices, draft.device->name, link.name, link.devices, fix));
}

Level scale_up_of(const Draft& draft, const Cluster& cluster) {
  Level link = cluster.device.scale_up;
  const std::int64_t whole = cluster.devices_per_node;
  switch (cluster.device.link_reach) {
    case LinkReach::bridge:
      link.devices = 1;
      break;
    case LinkReach::node:
      link.devices = std::min(link.devices, whole);
      break;
    case LinkReach::rack:
      link.devices = std::max<std::int64_t>(1, link.devices / whole) * whole;
      break;
  }
  link.devices = draft.link_devices.value_or(link.devices);
  if (!draft.link_name.empty()) link.name = draft.link_name;
  if (link.name.empty()) link.name = "scale_up";
  if (draft.link_bandwidth) link.bandwidth = link.pair_bandwidth = *draft.link_bandwidth;
  link.pair_bandwidth = draft.link_pair_bandwidth.value_or(link.pair_bandwidth);
  if (link.latency == 0) link.latency = link_latency;
  link.latency = draft.link_latency.value_or(link.latency);
  return link;
}

Level pcie_of(const Draft& draft, const Device& device) {
  Level pcie;
  pcie.name = "pcie";
  pcie.devices = draft.pcie_devices.value_or(0);
  pcie.bandwidth = draft.pcie_bandwidth.value_or(device.pcie_bandwidth);
  pcie.pair_bandwidth = pcie.bandwidth;
  pcie.latency = draft.pcie_latency.value_or(pcie_latency);
  return pcie;
}

void complete_network(const Draft& draft, Cluster& cluster) {
  const bool is_usual = cluster.device.nic_bandwidth > 0;
  cluster.nics = draft.nics.value_or(is_usual || draft.nic_bandwidth ? cluster.devices_per_node : 0);
  cluster.nic_bandwidth = draft.nic_bandwidth.value_or(cluster.device.nic_bandwidth);
  cluster.nic_latency = draft.nic_latency.value_or(network_latency);
  if (!draft.switches.empty()) cluster.switches = draft.switches;
  cluster.switches.front().oversubscription =
      draft.oversubscription.value_or(cluster.switches.front().oversubscription);
  if (cluster.nodes > 1 && is_usual && (!draft.nics || !draft.nic_bandwidth)) {
    cluster.notes.push_back(fmt::format("nics not given: {} of {} a node, as is usual for {}", cluster.nics,
                                        quantity_text(cluster.nic_bandwidth, Quantity::bandwidth),
                                        cluster.device.name));
  }
}

void check_last_switch(const Cluster& cluster, Problems& problems) {
  const Switch& last = cluster.switches.back();
  if (last.nodes > 0 && last.nodes < cluster.nodes) {
    problems.add(
        fmt::format("switches[{}].nodes is {}, but the last level joins all {} nodes; leave it out or add a "
                    "level",
                    cluster.switches.size() - 1, last.nodes, cluster.nodes));
  }
}

void check_names(const Cluster& cluster, Problems& problems) {
  for (std::size_t i = 0; i < cluster.levels.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (cluster.levels[i].name == cluster.levels[j].name)
        problems.add(fmt::format("two levels are named {}", cluster.levels[i].name));
}

void note_assumptions(Cluster& cluster) {
  if (cluster.device.link_reach == LinkReach::bridge && cluster.scale_up.devices == 1 &&
      cluster.devices_per_node > 1) {
    cluster.notes.push_back(
        fmt::format("no {} bridges between pairs of {}; give scale_up.devices: 2 where there are",
                    cluster.scale_up.name, cluster.device.name));
  }
  for (const Level& level : cluster.levels)
    if (level.bandwidth == 0) cluster.notes.push_back("bandwidth of level " + level.name + " is not known");
}

}  // namespace

Cluster completed(const Draft& draft) {
  Problems problems;
  if (!draft.device) problems.add("device must be given, as in device: H100-SXM or node: 8xH100-SXM");
  if (!draft.devices_per_node) problems.add("devices_per_node must be given, or node as in 8xH100-SXM");
  check_memory(draft, problems);
  check_count(draft, problems);
  problems.raise();

  Cluster cluster;
  cluster.device = *draft.device;
  cluster.nodes = draft.nodes.value_or(1);
  cluster.devices_per_node = *draft.devices_per_node;
  cluster.name = draft.name.empty()
                     ? fmt::format("{}x{}x{}", cluster.nodes, cluster.devices_per_node, cluster.device.name)
                     : draft.name;
  cluster.usable_bytes = draft.usable_bytes.value_or(cluster.device.memory_bytes);
  cluster.host_memory_bytes = draft.host_memory_bytes.value_or(0);
  cluster.scale_up = scale_up_of(draft, cluster);
  cluster.pcie = pcie_of(draft, cluster.device);
  cluster.numa_nodes = draft.numa_nodes.value_or(1);
  cluster.numa_bandwidth = draft.numa_bandwidth.value_or(0);
  complete_network(draft, cluster);
  cluster.storage_bandwidth = draft.storage_bandwidth.value_or(0);
  cluster.input_rate = draft.input_rate.value_or(0);

  problems.add_all(link_problems(cluster));
  check_last_switch(cluster, problems);
  problems.raise();
  cluster.levels = levels_of(cluster);
  check_names(cluster, problems);
  problems.raise();
  note_assumptions(cluster);
  return cluster;
}

}  // namespace ndmesh::cluster
