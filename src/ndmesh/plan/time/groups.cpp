#include "ndmesh/plan/time/groups.h"

#include <array>
#include <numeric>

namespace ndmesh::plan {
namespace {

std::array<std::int64_t, mesh::axis_count> strides_of(const Candidate& candidate) {
  std::array<std::int64_t, mesh::axis_count> strides{};
  std::int64_t stride = 1;
  for (const mesh::Axis axis : candidate.order) {
    strides[static_cast<std::size_t>(axis)] = stride;
    stride *= candidate.mesh.size(axis);
  }
  return strides;
}

/// Ranks of a stage whose number, in the order of Axis, is i * first for 0 <= i < size.
std::vector<cluster::Extent> stage_run(const Candidate& candidate, std::int64_t first, std::int64_t size) {
  const auto strides = strides_of(candidate);
  std::vector<cluster::Extent> extents;
  for (const mesh::Axis axis :
       {mesh::Axis::tp, mesh::Axis::cp, mesh::Axis::dp_shard, mesh::Axis::dp_replicate}) {
    const std::int64_t skipped = std::gcd(first, candidate.mesh.size(axis));
    const std::int64_t taken = std::gcd(candidate.mesh.size(axis) / skipped, size);
    first /= skipped;
    if (first > 1) {
      continue;
    }
    if (taken > 1) {
      extents.push_back({.size = taken, .stride = strides[static_cast<std::size_t>(axis)] * skipped});
    }
    size /= taken;
  }
  return extents;
}

}  // namespace

std::vector<cluster::Extent> extents_of(const Candidate& candidate, mesh::AxisSet axes) {
  const auto strides = strides_of(candidate);
  std::vector<cluster::Extent> extents;
  for (const mesh::Axis axis : candidate.order) {
    if (axes.contains(axis) && candidate.mesh.size(axis) > 1) {
      extents.push_back(
          {.size = candidate.mesh.size(axis), .stride = strides[static_cast<std::size_t>(axis)]});
    }
  }
  return extents;
}

std::vector<cluster::Extent> extents_of(const Candidate& candidate, mesh::ExpertAxis axis) {
  const mesh::MeshSizes& sizes = candidate.mesh;
  switch (axis) {
    case mesh::ExpertAxis::etp:
      return stage_run(candidate, 1, sizes.etp);
    case mesh::ExpertAxis::ep:
      return stage_run(candidate, sizes.etp, sizes.ep);
    case mesh::ExpertAxis::edp:
      return stage_run(candidate, sizes.etp * sizes.ep, sizes.stage_ranks() / (sizes.etp * sizes.ep));
  }
  return {};
}

}  // namespace ndmesh::plan
