#include <numeric>

#include "ndmesh/base/error.h"
#include "ndmesh/plan/search/answer.h"

namespace ndmesh::plan {
namespace {

/// What the user holds apart from the mesh, on this mesh.
Held on_mesh(const Held& held, const mesh::MeshSizes& sizes, std::int64_t zero) {
  Held fixed = held;
  for (const mesh::Axis axis : mesh::all_axes) {
    fixed.size(axis) = sizes.size(axis);
  }
  fixed.ep = sizes.ep;
  fixed.etp = sizes.etp;
  fixed.zero = zero;
  fixed.schedule.reset();
  fixed.chunks.reset();
  return fixed;
}

Baseline baseline(std::string name, const Problem& problem, const Held& held, const mesh::MeshSizes& sizes,
                  std::int64_t zero) {
  Baseline row{.name = std::move(name), .mesh = sizes, .plan = {}, .broken = {}};
  try {
    auto result = search(problem, constants_for(problem), on_mesh(held, sizes, zero), 1);
    row.plan = std::move(result.plans.front());
  } catch (const RequestError& error) {
    row.broken = error.problems();
  }
  return row;
}

/// Ranks that share parameters in the hybrid: one node, or half of a single node.
std::int64_t hybrid_shards(const cluster::Cluster& cluster) {
  return cluster.nodes > 1 ? cluster.devices_per_node
                           : std::max<std::int64_t>(1, cluster.devices_per_node / 2);
}

}  // namespace

std::vector<Baseline> baselines_of(const TrainingQuestion& question) {
  const Problem& problem = question.problem;
  const Held& held = question.held;
  const std::int64_t devices = problem.cluster.devices();
  Problem alone = problem;
  alone.cluster = cluster::resized(problem.cluster, 1);
  const std::int64_t shards = hybrid_shards(problem.cluster);
  return {
      baseline("one device", alone, held, {}, 0),
      baseline("plain data parallel", problem, held, {.dp_replicate = devices}, 0),
      baseline("zero 3 over all", problem, held, {.dp_shard = devices}, 3),
      baseline("hybrid", problem, held, {.dp_shard = shards, .dp_replicate = devices / shards}, 3),
  };
}

}  // namespace ndmesh::plan
