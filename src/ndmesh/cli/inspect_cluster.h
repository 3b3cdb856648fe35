#pragma once

#include <string>
#include <vector>

#include "ndmesh/cluster/cluster.h"

namespace ndmesh::cli {

/// What is inspected. `words` are a SOURCE (short form, cluster file, or job file with the key `cluster`) and KEY=VALUE
/// overrides of job keys, in any order; without both it is this machine. RequestError for what cannot be read.
cluster::Cluster cluster_of(const std::vector<std::string>& words);

/// Writes a cluster to standard output: the device with its figures, a node as a box, and the levels of the network
/// with the size of a domain, what each device and a pair has there, and the time of a hop. Memory is in powers of
/// two, rates in powers of ten. JSON, one document, also has the source of each of the catalogue's figures; what is
/// not known is null there.
void print_cluster(const cluster::Cluster& cluster, bool json);

}  // namespace ndmesh::cli
