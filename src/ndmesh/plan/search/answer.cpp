#include "ndmesh/plan/search/answer.h"

#include <algorithm>

#include "ndmesh/base/error.h"

namespace ndmesh::plan {
namespace {

/// Plans of different batches: those that fit first; of them those that are as fast as wanted, by step time;
/// then the others by tokens/s.
class Objective {
 public:
  explicit Objective(const TrainingQuestion& question) : question_(question) {}

  bool operator()(const Plan& a, const Plan& b) const {
    if (a.global_batch == b.global_batch || !a.fits || !b.fits) {
      return is_better(a, b);
    }
    const double speed_a = tokens_per_second(question_.problem, a);
    const double speed_b = tokens_per_second(question_.problem, b);
    const double wanted = question_.tokens_per_second;
    const bool reaches_a = wanted > 0 && speed_a >= wanted;
    const bool reaches_b = wanted > 0 && speed_b >= wanted;
    if (reaches_a != reaches_b) {
      return reaches_a;
    }
    return reaches_a ? is_better(a, b) : speed_a > speed_b;
  }

 private:
  const TrainingQuestion& question_;
};

/// Adds the counts and plans of one batch.
void merge(SearchResult& all, SearchResult one) {
  all.legal += one.legal;
  all.judged += one.judged;
  all.simulated += one.simulated;
  all.seconds += one.seconds;
  std::move(one.plans.begin(), one.plans.end(), std::back_inserter(all.plans));
}

/// A batch of the range for which nothing is legal is no choice; RequestError when none is.
SearchResult search_batches(const TrainingQuestion& question, std::int64_t top) {
  SearchResult all;
  std::optional<RequestError> refused;
  for (Problem problem = question.problem; problem.global_batch <= question.max_batch;
       problem.global_batch *= 2) {
    try {
      merge(all, search(problem, constants_for(problem), question.held, top));
    } catch (const RequestError& error) {
      refused = refused ? refused : error;
    }
  }
  if (all.plans.empty()) {
    throw RequestError(refused->problems());
  }
  std::stable_sort(all.plans.begin(), all.plans.end(), Objective(question));
  all.plans.resize(std::min(all.plans.size(), static_cast<std::size_t>(top)));
  return all;
}

void set_stages(Problem problem, Plan& plan) {
  problem.global_batch = plan.global_batch;
  const MemoryModel memory(problem);
  plan.stages = memory.budgets(plan.candidate);
  for (const layout::Range& stage : memory.stages(plan.candidate)) {
    plan.layers.push_back(stage.size);
  }
}

bool reaches(const TrainingAnswer& answer) {
  const double wanted = answer.question.tokens_per_second;
  return wanted <= 0 || tokens_per_second(answer.question.problem, answer.result.plans.front()) >= wanted;
}

}  // namespace

double tokens_per_second(const Problem& problem, const Plan& plan) {
  return static_cast<double>(plan.global_batch * problem.seq_len) / plan.time.seconds;
}

std::optional<Plan> best_plan(const Problem& problem, const Held& held) {
  try {
    SearchResult result = search(problem, constants_for(problem), held, 1);
    return std::move(result.plans.front());
  } catch (const RequestError&) {
    return std::nullopt;
  }
}

std::optional<Plan> best_plan(const TrainingQuestion& question) {
  try {
    return std::move(search_batches(question, 1).plans.front());
  } catch (const RequestError&) {
    return std::nullopt;
  }
}

TrainingAnswer answer(const TrainingQuestion& question, std::int64_t top) {
  TrainingAnswer answer{.question = question,
                        .allowed_bytes = allowed_bytes(question.problem),
                        .result = search_batches(question, top),
                        .baselines = {},
                        .without = {},
                        .warnings = {},
                        .fixes = {}};
  TrainingQuestion of_best = question;
  of_best.problem.global_batch = answer.result.plans.front().global_batch;
  answer.baselines = baselines_of(of_best);
  answer.without = without_axes(of_best, answer.result.plans);
  for (Plan& plan : answer.result.plans) {
    plan.reasons = reasons_of(answer, plan);
    set_stages(question.problem, plan);
  }
  answer.warnings = warnings_of(answer);
  if (!answer.fits() || !reaches(answer)) {
    answer.fixes = fixes_of(answer);
  }
  return answer;
}

}  // namespace ndmesh::plan
