#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ndmesh/plan/serving/serving.h"

namespace ndmesh::plan {

/// Replicas of `ranks` ranks that a cluster holds when each sits on neighbouring devices: several in one node
/// (or one larger domain of fast links), or one on whole nodes.
std::int64_t replicas_on(const cluster::Cluster& cluster, std::int64_t ranks);

/// Whether some tp group sits on more than one node (or larger domain of fast links).
bool tp_leaves_domain(const cluster::Cluster& cluster, const Replica& replica);

/// By mesh::Axis the name of the outermost level that a group of one replica crosses; empty for size 1.
/// dp_replicate stands for the attention ranks of one replica: whole replicas exchange nothing.
std::vector<std::string> serving_levels(const cluster::Cluster& cluster, const Replica& replica);

}  // namespace ndmesh::plan
