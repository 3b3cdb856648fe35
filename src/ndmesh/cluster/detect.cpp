#include <hwloc.h>

#include <algorithm>
#include <fstream>
#include <memory>

#include "ndmesh/base/error.h"
#include "ndmesh/cluster/links.h"

namespace ndmesh::cluster {
namespace {

struct Destroy {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, Destroy>;

Topology load_topology() {
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) throw RunError("hwloc cannot start");
  Topology owner(topology);
  if (hwloc_topology_load(topology) != 0) throw RunError("hwloc cannot read this machine's topology");
  return owner;
}

std::int64_t count_of(hwloc_topology_t topology, hwloc_obj_type_t type) {
  return std::max(1, hwloc_get_nbobjs_by_type(topology, type));
}

/// "AMD EPYC 7763 64-Core Processor"; "CPU" when hwloc does not know.
std::string processor_name(hwloc_topology_t topology) {
  const hwloc_obj_t package = hwloc_get_obj_by_type(topology, HWLOC_OBJ_PACKAGE, 0);
  const char* name = package == nullptr ? nullptr : hwloc_obj_get_info_by_name(package, "CPUModel");
  return name == nullptr ? "CPU" : name;
}

/// Bytes of memory that this process may use: the machine's, or the limit of its control group where that is less.
std::int64_t usable_memory(hwloc_topology_t topology) {
  const auto machine = static_cast<std::int64_t>(hwloc_get_root_obj(topology)->total_memory);
  std::ifstream file("/sys/fs/cgroup/memory.max");
  std::int64_t limit = 0;
  return file >> limit && limit > 0 ? std::min(machine, limit) : machine;  // the file says "max" for no limit
}

Device core_device(hwloc_topology_t topology, std::int64_t memory_bytes) {
  Device device;
  device.name = "cpu";
  device.architecture = processor_name(topology);
  device.memory_bytes = memory_bytes;
  return device;
}

}  // namespace

Cluster detect_cluster() {
  const Topology topology = load_topology();
  Cluster cluster;
  cluster.name = "this machine";
  cluster.devices_per_node = std::min(count_of(topology.get(), HWLOC_OBJ_CORE), max_devices_per_node);
  cluster.numa_nodes = count_of(topology.get(), HWLOC_OBJ_NUMANODE);
  cluster.host_memory_bytes = usable_memory(topology.get());
  cluster.usable_bytes = cluster.host_memory_bytes / cluster.devices_per_node;
  cluster.device = core_device(topology.get(), cluster.usable_bytes);
  cluster.scale_up = {"memory", cluster.devices_per_node, 0, 0, 0};
  cluster.pcie.name = "pcie";
  cluster.pcie.devices = 0;  // all of a node
  cluster.levels = levels_of(cluster);
  cluster.notes = {"a core is a device here; each is given an equal share of the memory",
                   "peaks and bandwidths of this machine are not known until they are measured"};
  return cluster;
}

}  // namespace ndmesh::cluster
