#pragma once

#include <vector>

#include "ndmesh/cluster/cluster.h"

namespace ndmesh::cluster {

// Seconds that one hop of a ring adds to a small message: NCCL's own model of its low-latency protocol (graph tuning
// table, 2026). With NCCL's base of 6.6 us they give 15.0 us for 14 hops of NVLink; 15.5 were measured on 8 H100.
// Links that NCCL does not know (xGMI, NeuronLink) take NVLink's.
inline constexpr double link_latency = 0.6e-6;
inline constexpr double pcie_latency = 1.0e-6;
inline constexpr double network_latency = 2.7e-6;

/// Most devices of a cluster, and nodes: more than any that stands, and few enough to enumerate.
inline constexpr std::int64_t max_devices = 1 << 20;
inline constexpr std::int64_t max_devices_per_node = 1024;

/// The levels that a cluster's links make, inwards out. The cluster has passed link_problems().
std::vector<Level> levels_of(const Cluster& cluster);

/// What is wrong with counts and links, in the key names of a cluster file: sizes that do not divide, no NIC
/// where one is needed. Empty: nothing.
std::vector<std::string> link_problems(const Cluster& cluster);

}  // namespace ndmesh::cluster
