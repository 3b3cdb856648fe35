#include "ndmesh/plan/search/judge.h"

#include <tuple>
#include <utility>

#include "ndmesh/plan/time/groups.h"

namespace ndmesh::plan {
namespace {

std::tuple<std::string, std::int64_t> identity(const Plan& plan) {
  return {plan.candidate.mesh.name(), plan.candidate.micro};
}

}  // namespace

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

Plan Judge::plan(const Candidate& candidate, StepTime time) const {
  Plan plan;
  plan.candidate = candidate;
  plan.global_batch = problem_.global_batch;
  plan.worst = memory_.worst(candidate);
  plan.fits = plan.worst.reserved <= allowed_;
  plan.time = std::move(time);
  plan.levels = levels_of(problem_.cluster, candidate);
  return plan;
}

}  // namespace ndmesh::plan
