#pragma once

#include <optional>

#include "ndmesh/base/error.h"
#include "ndmesh/base/yaml.h"
#include "ndmesh/cluster/cluster.h"

namespace ndmesh::cluster {

/// A cluster as far as it was said; what is empty takes a default.
struct Draft {
  std::string name;
  std::optional<Device> device;
  std::optional<std::int64_t> nodes, devices_per_node;
  std::optional<std::int64_t> usable_bytes, host_memory_bytes;

  std::string link_name;
  std::optional<std::int64_t> link_devices;
  std::optional<double> link_bandwidth, link_pair_bandwidth, link_latency;

  std::optional<std::int64_t> pcie_devices;
  std::optional<double> pcie_bandwidth, pcie_latency;

  std::optional<std::int64_t> numa_nodes;
  std::optional<double> numa_bandwidth;

  std::optional<std::int64_t> nics;
  std::optional<double> nic_bandwidth, nic_latency;
  std::optional<double> oversubscription;
  std::vector<Switch> switches;

  std::optional<double> storage_bandwidth, input_rate;
};

/// "8xH100-SXM", "64x8xH100-SXM", "H100-SXM". RequestError for counts that are no counts and unknown devices.
Draft read_short_form(std::string_view text);

/// A mapping of the keys of a cluster file. Problems are named by key.
Draft read_keys(const YamlNode& map);

/// Fills in what was not said, and builds the levels. RequestError with everything that is wrong.
Cluster completed(const Draft& draft);

}  // namespace ndmesh::cluster
