#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "ndmesh/cluster/device.h"

namespace ndmesh::cluster {

/// What joins nodes, one kind of switch for each level above the node.
struct Switch {
  std::string name = "network";
  std::int64_t nodes = 0;  ///< below one switch; 0: all
  /// Bandwidth of the links below over that of the links upwards that their traffic takes; factors of levels multiply.
  double oversubscription = 1;

  bool operator==(const Switch&) const = default;
};

/// Devices of one kind in nodes of one shape, and what joins them. A plain value. `levels` follow from the other
/// members (resized() builds them anew).
struct Cluster {
  std::string name;  ///< as written: "8xH100-SXM"
  Device device;
  std::int64_t nodes = 1;
  std::int64_t devices_per_node = 1;
  std::int64_t usable_bytes = 0;       ///< of each device, before plan.headroom
  std::int64_t host_memory_bytes = 0;  ///< of one node; 0: not known

  /// Links between devices without the host. `devices` is the most in one domain, within a node or over several (a
  /// rack of trays); 1: none.
  Level scale_up;
  Level pcie;                   ///< `devices` is those below one switch; 0: no switches
  std::int64_t numa_nodes = 1;  ///< of one node; devices are attached to them evenly, in order
  double numa_bandwidth =
      0;                  ///< bytes/s between NUMA nodes, shared by the devices of one; 0: never in the way
  std::int64_t nics = 0;  ///< of one node, shared evenly by its devices; 0: not known, one node only
  double nic_bandwidth = 0;                   ///< bytes/s of one NIC, one direction
  double nic_latency = 0;                     ///< seconds of one hop over the network
  std::vector<Switch> switches = {Switch()};  ///< inwards out, at least one; the last joins all

  double storage_bandwidth = 0;    ///< bytes/s that the whole cluster writes; 0: not known
  double input_rate = 0;           ///< tokens/s that the input can deliver to the cluster; 0: not known
  std::vector<Level> levels;       ///< at least one; the last level's only domain is the whole cluster
  std::vector<std::string> notes;  ///< what was assumed where nothing was said

  std::int64_t devices() const { return nodes * devices_per_node; }
};

/// Ranks base + i * stride for 0 <= i < size, for each extent on top of the ones before: the shape of a group
/// of a mesh when rank r sits on device r.
struct Extent {
  std::int64_t size = 1;
  std::int64_t stride = 1;
};

/// Where a group sits. By level: how many of its ranks share one domain (the fewest in a domain that any group of the
/// shape touches, which is the slowest), and over how many domains it reaches (the most). All groups of the shape send
/// at once, and a level's bandwidth is already each device's share: a group leaves a domain of level L with
/// members[L] times the bandwidth of the level that it crosses.
struct Span {
  std::int64_t ranks = 1;
  std::size_t level = 0;              ///< outermost level that it crosses
  std::vector<std::int64_t> members;  ///< by level, ascending; the last is `ranks`
  std::vector<std::int64_t> domains;  ///< by level, descending; the last is 1
};

/// The span of the groups with `extents`, in any order, in a world that fills the cluster from device 0. Any sizes:
/// domains need not be powers of two. The groups are those of a mesh: by ascending stride, each stride is a multiple
/// of the extent before (size * stride), and at least one group fits into the cluster (std::invalid_argument).
/// Counts without visiting ranks where sizes divide, and visits each rank once where they do not.
Span span_of(const Cluster& cluster, const std::vector<Extent>& extents);

/// A cluster from its short form ("8xH100-SXM", "64x8xH100-SXM"), a YAML mapping ({nodes: 64, node: 8xH100-SXM,
/// nics: 8x400G, oversubscription: 2}) or the name of a file of the same keys (docs/clusters.md lists them). `yaml` is
/// the text of the value as in a job, `source` what messages call it. RequestError with everything that is wrong:
/// unknown device (with the nearest), unknown keys, sizes that do not divide. Values that are not given take the
/// catalogue's; `notes` say which.
Cluster parse_cluster(const std::string& yaml, const std::string& source);
Cluster read_cluster(const std::filesystem::path& file);

/// The file of the cluster in full, which read_cluster reads back to the same cluster.
std::string cluster_yaml(const Cluster& cluster);

/// This machine: its NUMA nodes, cores and memory by hwloc; the CPU is the device, one per core.
Cluster detect_cluster();

/// The same cluster with another number of nodes (or, below one node, of devices, spread evenly over its NUMA nodes):
/// what "fewest devices" is searched over. RequestError when `devices` is no multiple of the node and not below it, or
/// when several nodes need a NIC that nobody stated.
Cluster resized(const Cluster& cluster, std::int64_t devices);

}  // namespace ndmesh::cluster
