#include "ndmesh/plan/search/mesh_judge.h"

#include <algorithm>
#include <limits>

namespace ndmesh::plan {
namespace {

Candidate candidate_of(const MeshOptions& options, const Choice& choice, const Sharding& sharding) {
  const Staging& staging = options.staging[choice.staging];
  Candidate candidate;
  candidate.mesh = options.mesh;
  candidate.order = options.orders.front();
  candidate.micro = staging.micro[choice.micro];
  candidate.schedule = staging.pipelining.kind;
  candidate.chunks = staging.pipelining.chunks;
  candidate.recompute = options.recompute[choice.recompute];
  candidate.offload = options.offload;
  candidate.offload_activations = options.offload_activations;
  candidate.sequence_parallel = options.sequence_parallel;
  candidate.zero = sharding.zero;
  candidate.reshard = sharding.reshard;
  return candidate;
}

/// What TimeModel::least_compute_seconds has least for, of all orders and all ways to share.
Candidate loosest(const MeshOptions& options, const Choice& choice) {
  Candidate candidate = candidate_of(options, choice, {.zero = 3, .reshard = false});
  candidate.mesh.dp_shard *= candidate.mesh.dp_replicate;
  candidate.mesh.dp_replicate = 1;
  return candidate;
}

template <typename Visit>
void each_choice(const MeshOptions& options, Visit visit) {
  Choice choice;
  for (choice.staging = 0; choice.staging < options.staging.size(); ++choice.staging) {
    for (choice.micro = 0; choice.micro < options.staging[choice.staging].micro.size(); ++choice.micro) {
      for (choice.recompute = 0; choice.recompute < options.recompute.size(); ++choice.recompute) {
        visit(choice);
      }
    }
  }
}

/// Which candidates of a mesh may fit. More sequences in a micro-batch never need less (a property of
/// MemoryModel that is tested), so that one answer holds for many: the least micro-batch is asked first, and
/// what does not fit rules out what is larger.
class Fitting {
 public:
  Fitting(const MeshOptions& options, const MemoryModel& memory, std::int64_t allowed)
      : options_(options),
        memory_(memory),
        allowed_(allowed),
        too_large_(options.sharding.size() * options.staging.size() * options.recompute.size(), unknown) {}

  bool may_fit(const Choice& choice, std::size_t sharding) {
    std::size_t& too_large =
        too_large_[(sharding * options_.staging.size() + choice.staging) * options_.recompute.size() +
                   choice.recompute];
    if (too_large == unknown) {
      Choice least = choice;
      least.micro = 0;
      too_large = exceeds(least, sharding) ? 0 : options_.staging[choice.staging].micro.size();
    }
    if (choice.micro >= too_large) {
      return false;
    }
    if (choice.micro > 0 && exceeds(choice, sharding)) {
      too_large = choice.micro;
      return false;
    }
    return true;
  }

 private:
  static constexpr std::size_t unknown = std::numeric_limits<std::size_t>::max();

  bool exceeds(const Choice& choice, std::size_t sharding) const {
    return memory_.least_bytes(candidate_of(options_, choice, options_.sharding[sharding])) > allowed_;
  }

  const MeshOptions& options_;
  const MemoryModel& memory_;
  std::int64_t allowed_;
  std::vector<std::size_t> too_large_;  ///< least index of a micro-batch that does not fit
};

}  // namespace

double MeshJudge::least_seconds(const MeshOptions& options) const {
  double least = std::numeric_limits<double>::infinity();
  each_choice(options, [&](const Choice& choice) {
    // The first recomputes least; only where activations are offloaded may another take less time.
    if (choice.recompute == 0 || options.offload_activations) {
      least = std::min(least, judge_.time().least_compute_seconds(loosest(options, choice)));
    }
  });
  return least;
}

std::vector<Choice> MeshJudge::choices(const MeshOptions& options, double limit) const {
  std::vector<Choice> open;
  each_choice(options, [&](Choice choice) {
    choice.bound = judge_.time().least_compute_seconds(loosest(options, choice));
    if (choice.bound <= limit) {
      open.push_back(choice);
    }
  });
  std::stable_sort(open.begin(), open.end(),
                   [](const Choice& a, const Choice& b) { return a.bound < b.bound; });
  return open;
}

std::int64_t MeshJudge::least_bytes(const MeshOptions& options) const {
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  each_choice(options, [&](const Choice& choice) {
    for (const Sharding& sharding : options.sharding) {
      if (choice.micro == 0) {  // larger ones never need less
        least = std::min(least, judge_.memory().least_bytes(candidate_of(options, choice, sharding)));
      }
    }
  });
  return least;
}

std::optional<Plan> MeshJudge::fastest(const MeshOptions& options, const std::vector<Choice>& choices,
                                       double limit) {
  Fitting fitting(options, judge_.memory(), judge_.allowed());
  std::optional<Plan> best;
  for (const Choice& choice : choices) {
    for (std::size_t sharding = 0; sharding < options.sharding.size() && choice.bound <= limit; ++sharding) {
      if (fitting.may_fit(choice, sharding)) {
        try_orders(options, candidate_of(options, choice, options.sharding[sharding]), limit, best);
      }
    }
  }
  return best;
}

/// Memory is the same for every order: it is asked once, when the first order is fast enough to be of
/// interest.
void MeshJudge::try_orders(const MeshOptions& options, Candidate candidate, double& limit,
                           std::optional<Plan>& best) {
  bool is_known_to_fit = false;
  for (const mesh::AxisOrder& order : options.orders) {
    candidate.order = order;
    if (judge_.time().least_seconds(candidate) > limit) {
      continue;
    }
    if (!is_known_to_fit && !judge_.fits(candidate)) {
      return;
    }
    is_known_to_fit = true;
    ++simulated_;
    StepTime time = judge_.time().step(candidate);
    if (time.seconds > limit) {
      continue;
    }
    Plan plan = judge_.plan(candidate, std::move(time));
    if (!best || is_better(plan, *best)) {
      best = std::move(plan);
      limit = best->time.seconds;
    }
  }
}

std::optional<Plan> MeshJudge::leanest(const MeshOptions& options, std::int64_t limit) const {
  Fitting fitting(options, judge_.memory(), limit);
  std::optional<Plan> best;
  each_choice(options, [&](const Choice& choice) {
    for (std::size_t sharding = 0; sharding < options.sharding.size(); ++sharding) {
      const Candidate candidate = candidate_of(options, choice, options.sharding[sharding]);
      if (!fitting.may_fit(choice, sharding) || judge_.memory().worst(candidate).reserved > limit) {
        continue;
      }
      Plan plan = judge_.judge(candidate);
      if (!best || is_better(plan, *best)) {
        best = std::move(plan);
        limit = best->worst.reserved;
      }
    }
  });
  return best;
}

}  // namespace ndmesh::plan
