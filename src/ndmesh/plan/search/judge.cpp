#include "ndmesh/plan/search/judge.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "ndmesh/plan/time/groups.h"

namespace ndmesh::plan {
namespace {

std::tuple<std::string, std::int64_t> identity(const Plan& plan) {
  return {plan.candidate.mesh.name(), plan.candidate.micro};
}

}  // namespace

std::int64_t node_host_bytes(const cluster::Cluster& cluster, const Candidate& candidate,
                             const std::vector<StageBudget>& stages) {
  std::int64_t stride = 1;  // ranks between one stage and the next
  for (const mesh::Axis axis : candidate.order) {
    if (axis == mesh::Axis::pp) {
      break;
    }
    stride *= candidate.mesh.size(axis);
  }
  const std::int64_t ranks = candidate.mesh.world();
  const std::int64_t period = std::min(ranks, std::lcm(stride * candidate.mesh.pp, cluster.devices_per_node));
  const std::int64_t step = std::min(stride, cluster.devices_per_node);
  std::int64_t most = 0;
  for (std::int64_t first = 0; first < period; first += cluster.devices_per_node) {
    std::int64_t bytes = 0;
    const std::int64_t end = std::min(ranks, first + cluster.devices_per_node);
    for (std::int64_t rank = first; rank < end;) {
      const std::int64_t next = std::min(end, (rank / step + 1) * step);
      const auto stage = static_cast<std::size_t>(rank / stride % candidate.mesh.pp);
      bytes += (next - rank) * stages[stage].host_bytes;
      rank = next;
    }
    most = std::max(most, bytes);
  }
  return most;
}

std::int64_t micro_batches(const Plan& plan) {
  return plan.global_batch / (plan.candidate.micro * plan.candidate.mesh.batch_ranks());
}

bool is_better(const Plan& a, const Plan& b) {
  if (a.fits != b.fits) {
    return a.fits;
  }
  if (!a.fits && a.worst.reserved != b.worst.reserved) {
    return a.worst.reserved < b.worst.reserved;
  }
  if (a.time.seconds != b.time.seconds) {
    return a.time.seconds < b.time.seconds;
  }
  if (a.time.exposed != b.time.exposed) {
    return a.time.exposed < b.time.exposed;
  }
  return identity(a) < identity(b);
}

Judge::Judge(const Problem& problem, const Constants& constants)
    : problem_(problem), allowed_(allowed_bytes(problem)), memory_(problem), time_(problem, constants) {}

std::int64_t Judge::host_bytes(const Candidate& candidate) const {
  return candidate.offload == job::Offload::none && !candidate.offload_activations
             ? 0
             : node_host_bytes(problem_.cluster, candidate, memory_.budgets(candidate));
}

bool Judge::fits(const StageBudget& worst, std::int64_t node_host_bytes) const {
  const std::int64_t host = problem_.cluster.host_memory_bytes;
  return worst.reserved <= allowed_ && (host == 0 || node_host_bytes <= host);
}

bool Judge::fits(const Candidate& candidate) const {
  const bool asks_host = problem_.cluster.host_memory_bytes > 0;
  return fits(memory_.worst(candidate), asks_host ? host_bytes(candidate) : 0);
}

Plan Judge::plan(const Candidate& candidate, StepTime time) const {
  Plan plan;
  plan.candidate = candidate;
  plan.schedule_file = runs_list(problem_, candidate) ? problem_.list.file : "";
  plan.global_batch = problem_.global_batch;
  plan.worst = memory_.worst(candidate);
  plan.node_host_bytes = host_bytes(candidate);
  plan.fits = fits(plan.worst, plan.node_host_bytes);
  plan.time = std::move(time);
  plan.levels = levels_of(problem_.cluster, candidate);
  return plan;
}

}  // namespace ndmesh::plan
