#pragma once

#include <vector>

#include "ndmesh/cluster/cluster.h"
#include "ndmesh/plan/problem.h"

namespace ndmesh::plan {

/// The shape on the cluster of the groups over `axes`, rank r on device r: extents in the candidate's order,
/// axes of one rank left out.
std::vector<cluster::Extent> extents_of(const Candidate& candidate, mesh::AxisSet axes);

/// The same for a group of the folded expert view: mesh::Mesh cuts the ranks of a stage, counted tp fastest,
/// then cp, dp_shard, dp_replicate, as etp, ep, edp.
std::vector<cluster::Extent> extents_of(const Candidate& candidate, mesh::ExpertAxis axis);

}  // namespace ndmesh::plan
