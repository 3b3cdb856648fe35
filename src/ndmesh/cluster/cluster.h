#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "ndmesh/base/dtype.h"

namespace ndmesh::cluster {

/// One kind of accelerator, with dense peaks and one-direction bandwidths. A figure of 0 is not known. The
/// catalogue holds where each figure comes from; a plan that needs an unknown one says so.
struct Device {
  std::string name;          ///< "H100-SXM"
  std::string architecture;  ///< "Hopper"; decides kernel behaviour that peaks do not tell
  double bf16_flops = 0;     ///< dense FLOP/s of bfloat16 and float16 products
  double fp32_flops = 0;     ///< of float32 products (tensor-core formats off)
  double fp8_flops = 0;
  double fp4_flops = 0;
  std::int64_t memory_bytes = 0;  ///< what the driver reports, not the label
  double memory_bandwidth = 0;    ///< bytes/s
  double host_bandwidth = 0;      ///< bytes/s to host memory, one direction
  double matmul_efficiency = 0;   ///< measured share of bf16_flops in large products

  /// Dense peak of products in `dtype`: 0 when it is not known.
  double peak_flops(DType dtype) const;
};

/// One level of the network, from the fastest inwards to the slowest outwards. A domain of a level is a run
/// of consecutive devices; the last level's only domain is the whole cluster.
struct Level {
  std::string name;          ///< "nvlink", "pcie", "node", "leaf", "spine", ...
  std::int64_t devices = 1;  ///< in one domain
  double bandwidth = 0;      ///< bytes/s, one direction, that each device of a domain has towards the rest of
      ///< its domain when all of them send at once (shared NICs and oversubscription counted)
  double pair_bandwidth = 0;  ///< bytes/s between one pair when nobody else sends
  double latency = 0;         ///< seconds for one hop
};

/// Devices of one kind in nodes of one shape, and what joins them. A plain value.
struct Cluster {
  std::string name;  ///< as written: "8xH100-SXM"
  Device device;
  std::int64_t nodes = 1;
  std::int64_t devices_per_node = 1;
  std::int64_t usable_bytes = 0;       ///< of each device, before plan.headroom
  std::int64_t host_memory_bytes = 0;  ///< of one node; 0: not known
  std::int64_t nics = 0;               ///< of one node; 0: one node only
  double nic_bandwidth = 0;            ///< bytes/s of one NIC, one direction
  double oversubscription = 1;         ///< above the node
  std::int64_t numa_nodes = 1;         ///< of one node
  double storage_bandwidth = 0;        ///< bytes/s that the whole cluster writes; 0: not known
  double input_rate = 0;               ///< tokens/s that the input can deliver to the cluster; 0: not known
  std::vector<Level> levels;           ///< at least one

  std::int64_t devices() const { return nodes * devices_per_node; }
};

/// Ranks base + i * stride for 0 <= i < size, for each extent on top of the ones before: the shape of a group
/// of a mesh when rank r sits on device r.
struct Extent {
  std::int64_t size = 1;
  std::int64_t stride = 1;
};

/// Where a group sits: per level of the cluster, how many of its ranks share one domain (of the group with the
/// fewest there, which is the slowest), and how many groups of that shape share a domain's links.
struct Span {
  std::int64_t ranks = 1;
  std::size_t level = 0;              ///< outermost level that it crosses
  std::vector<std::int64_t> members;  ///< by level, ascending; the last is `ranks`
};

/// The span of the groups with `extents` in a world that fills the cluster from device 0. Any sizes: domains
/// need not be powers of two.
Span span_of(const Cluster& cluster, const std::vector<Extent>& extents);

/// A cluster from its short form ("8xH100-SXM", "64x8xH100-SXM"), a YAML mapping ({nodes: 64, node: 8xH100-SXM, nics: 8x400G,
/// oversubscription: 2}) or a file of the same keys, in full (docs/clusters.md lists them). `yaml` is the text of
/// the value as in a job. RequestError with everything that is wrong: unknown device (with the nearest),
/// unknown keys, sizes that do not divide.
Cluster parse_cluster(const std::string& yaml, const std::string& source);
Cluster read_cluster(const std::filesystem::path& file);

/// This machine: its NUMA nodes, cores and memory by hwloc; the CPU is the device, one per core.
Cluster detect_cluster();

/// The same cluster with another number of nodes (or, below one node, of devices): what "fewest devices"
/// is searched over. RequestError when `devices` is no multiple of the node and not below it.
Cluster resized(const Cluster& cluster, std::int64_t devices);

/// Names and aliases of the catalogue, for help and messages.
std::vector<std::string> device_names();
/// A device by name or alias (H100-SXM, H200-SXM, A100-SXM, ...). RequestError with the nearest.
Device device(std::string_view name);

}  // namespace ndmesh::cluster
