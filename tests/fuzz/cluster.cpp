#include "ndmesh/cluster/cluster.h"
#include "fuzz/target.h"

/// A cluster file or a short form.
void ndmesh::fuzz::one_input(std::string_view bytes) {
  const cluster::Cluster cluster = cluster::parse_cluster(std::string(bytes), "cluster.yaml");
  cluster.devices();
}
