#include "ndmesh/plan/serving/serving_placement.h"

#include <algorithm>

#include "ndmesh/base/integers.h"
#include "ndmesh/mesh/rules.h"

namespace ndmesh::plan {
namespace {

/// Devices of a node, or of the innermost domain where that spans nodes.
std::int64_t domain(const cluster::Cluster& cluster) {
  return std::max(cluster.devices_per_node, cluster.levels.front().devices);
}

/// The innermost level whose domains hold whole groups, which are runs of `span` devices of a replica.
const std::string& level_of(const cluster::Cluster& cluster, const Replica& replica, std::int64_t span) {
  const bool in_domain = replica.ranks() <= domain(cluster);
  for (const cluster::Level& level : cluster.levels) {
    if (level.devices % span == 0 || (in_domain && level.devices >= domain(cluster))) {
      return level.name;
    }
  }
  return cluster.levels.back().name;
}

}  // namespace

std::int64_t replicas_on(const cluster::Cluster& cluster, std::int64_t ranks) {
  const std::int64_t size = domain(cluster);
  const std::int64_t devices = cluster.devices();
  if (ranks <= size) {
    return devices / size * (size / ranks) + devices % size / ranks;
  }
  const std::int64_t whole = round_up(ranks, size);
  return devices / whole;
}

bool tp_leaves_domain(const cluster::Cluster& cluster, const Replica& replica) {
  return replica.tp > 1 && replica.ranks() > domain(cluster) && domain(cluster) % replica.tp != 0;
}

std::vector<std::string> serving_levels(const cluster::Cluster& cluster, const Replica& replica) {
  std::vector<std::string> levels(mesh::axis_count);
  const auto set = [&](mesh::Axis axis, std::int64_t size, std::int64_t span) {
    if (size > 1) {
      levels[static_cast<std::size_t>(axis)] = level_of(cluster, replica, span);
    }
  };
  set(mesh::Axis::tp, replica.tp, replica.tp);
  set(mesh::Axis::pp, replica.pp, replica.tp * replica.pp);
  set(mesh::Axis::dp_replicate, replica.attention_ranks, replica.ranks());
  return levels;
}

}  // namespace ndmesh::plan
