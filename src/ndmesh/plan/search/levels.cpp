#include "ndmesh/plan/search/judge.h"
#include "ndmesh/plan/time/groups.h"

namespace ndmesh::plan {
namespace {

std::string level_name(const cluster::Cluster& cluster, const std::vector<cluster::Extent>& extents) {
  return cluster.levels[cluster::span_of(cluster, extents).level].name;
}

}  // namespace

std::vector<AxisLevel> levels_of(const cluster::Cluster& cluster, const Candidate& candidate) {
  std::vector<AxisLevel> levels;
  for (const mesh::Axis axis : mesh::all_axes) {
    if (candidate.mesh.size(axis) > 1) {
      levels.push_back(
          {std::string(mesh::name_of(axis)), level_name(cluster, extents_of(candidate, {axis}))});
    }
  }
  for (const mesh::ExpertAxis axis : {mesh::ExpertAxis::etp, mesh::ExpertAxis::ep}) {
    const std::int64_t size = axis == mesh::ExpertAxis::ep ? candidate.mesh.ep : candidate.mesh.etp;
    if (size > 1) {
      levels.push_back({std::string(mesh::name_of(axis)), level_name(cluster, extents_of(candidate, axis))});
    }
  }
  return levels;
}

}  // namespace ndmesh::plan
