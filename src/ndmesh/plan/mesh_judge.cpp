#include "ndmesh/plan/mesh_judge.h"

#include <algorithm>

namespace ndmesh::plan {
namespace {

/// Visits the candidates of a mesh, in the first order, with the least that they need. A visit says whether that is little
/// enough to be of interest. More sequences in a micro-batch never need less (a property of MemoryModel that is
/// tested), so larger ones are left out once no recomputation helps.
template <typename Visit>
void each_budget(const MeshOptions& options, const MemoryModel& memory, Visit visit) {
  Candidate candidate;
  candidate.mesh = options.mesh;
  candidate.order = options.orders.front();
  for (const Sharding& sharding : options.sharding) {
    candidate.zero = sharding.zero;
    candidate.reshard = sharding.reshard;
    for (const Staging& staging : options.staging) {
      candidate.schedule = staging.pipelining.kind;
      candidate.chunks = staging.pipelining.chunks;
      for (const std::int64_t micro : staging.micro) {
        candidate.micro = micro;
        bool is_of_interest = false;
        for (const job::Recompute& recompute : options.recompute) {
          candidate.recompute = recompute;
          is_of_interest |= visit(candidate, memory.least_bytes(candidate));
        }
        if (!is_of_interest) {
          break;
        }
      }
    }
  }
}

/// A candidate with what it cannot be better than.
template <typename Bound>
struct Bounded {
  Bound bound;
  Candidate candidate;
};

template <typename Bound>
void sort_by_bound(std::vector<Bounded<Bound>>& list) {
  std::stable_sort(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.bound < b.bound; });
}

}  // namespace

MeshBounds MeshJudge::bounds(const MeshOptions& options) const {
  MeshBounds bounds;
  bounds.legal = options.count();
  each_budget(options, judge_.memory(), [&](Candidate candidate, std::int64_t bytes) {
    bounds.bytes = std::min(bounds.bytes, bytes);
    if (bytes > judge_.allowed()) {
      return false;
    }
    for (const mesh::AxisOrder& order : options.orders) {
      candidate.order = order;
      bounds.seconds = std::min(bounds.seconds, judge_.time().least_seconds(candidate));
    }
    return true;
  });
  return bounds;
}

std::optional<Plan> MeshJudge::fastest(const MeshOptions& options, double limit) {
  std::vector<Bounded<double>> open;
  each_budget(options, judge_.memory(), [&](Candidate candidate, std::int64_t bytes) {
    if (bytes > judge_.allowed()) {
      return false;
    }
    for (const mesh::AxisOrder& order : options.orders) {
      candidate.order = order;
      if (const double bound = judge_.time().least_seconds(candidate); bound <= limit) {
        open.push_back({bound, candidate});
      }
    }
    return true;
  });
  sort_by_bound(open);
  std::optional<Plan> best;
  for (const auto& [bound, candidate] : open) {
    if (bound > limit) {
      break;
    }
    if (judge_.memory().worst(candidate).reserved > judge_.allowed()) {
      continue;
    }
    ++simulated_;
    Plan plan = judge_.judge(candidate);
    if (plan.time.seconds <= limit && (!best || is_better(plan, *best))) {
      best = std::move(plan);
      limit = best->time.seconds;
    }
  }
  return best;
}

std::optional<Plan> MeshJudge::leanest(const MeshOptions& options, std::int64_t limit) {
  std::vector<Bounded<std::int64_t>> open;
  each_budget(options, judge_.memory(), [&](const Candidate& candidate, std::int64_t bytes) {
    if (bytes <= limit) {
      open.push_back({bytes, candidate});
    }
    return bytes <= limit;
  });
  sort_by_bound(open);
  std::optional<Plan> best;
  for (const auto& [bound, candidate] : open) {
    if (bound > limit) {
      break;
    }
    if (judge_.memory().worst(candidate).reserved > limit) {
      continue;
    }
    Plan plan = judge_.judge(candidate);
    if (!best || is_better(plan, *best)) {
      best = std::move(plan);
      limit = best->worst.reserved;
    }
  }
  return best;
}

}  // namespace ndmesh::plan
