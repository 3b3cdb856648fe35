#include <algorithm>
#include <chrono>
#include <tuple>

#include "ndmesh/plan/serving/serving.h"
#include "ndmesh/plan/serving/serving_explain.h"
#include "ndmesh/plan/serving/serving_fixes.h"
#include "ndmesh/plan/serving/serving_judge.h"
#include "ndmesh/plan/serving/serving_placement.h"
#include "ndmesh/plan/serving/serving_space.h"
#include "ndmesh/plan/serving/serving_widths.h"

namespace ndmesh::plan {
namespace {

/// What a further stage must bring in sequences at once, to make up for the later tokens.
constexpr double worth_of_a_stage = 0.25;

double score(const ServingPlan& plan) {
  return static_cast<double>(plan.concurrency) /
         (1 + worth_of_a_stage * static_cast<double>(plan.replica.pp - 1));
}

/// The order that answer_serving states.
bool is_better(const ServingQuestion& question, const ServingPlan& a, const ServingPlan& b) {
  if (a.fits != b.fits) {
    return a.fits;
  }
  const auto key = [&](const ServingPlan& plan) {
    const std::int64_t first = plan.fits ? -plan.replicas : excess(question, plan);
    return std::tuple(first, tp_leaves_domain(question.cluster, plan.replica), -score(plan), plan.replica.pp,
                      plan.replica.ep, plan.replica.tp);
  };
  return key(a) < key(b);
}

/// Those with more replicas than `plan` that do not fit: the one that lacks least, or nullptr.
const ServingPlan* nearest_smaller(const ServingQuestion& question, const std::vector<ServingPlan>& plans,
                                   const ServingPlan& plan) {
  const ServingPlan* nearest = nullptr;
  for (const ServingPlan& other : plans) {
    const bool smaller = !other.fits && other.replicas > plan.replicas;
    if (smaller && (nearest == nullptr || excess(question, other) < excess(question, *nearest))) {
      nearest = &other;
    }
  }
  return nearest;
}

/// Judged until no later one can be among the first `top`: replicas never grow along the list.
std::vector<ServingPlan> judged_plans(const ServingQuestion& question, ServingSpace space,
                                      const ServingJudge& judge, std::int64_t top, ServingAnswer& answer) {
  std::stable_sort(space.legal.begin(), space.legal.end(),
                   [&](const Replica& a, const Replica& b) { return judge.replicas(a) > judge.replicas(b); });
  answer.legal = static_cast<std::int64_t>(space.legal.size());
  answer.judged = space.judged;
  std::vector<ServingPlan> plans;
  std::int64_t fitting = 0;
  std::int64_t last_replicas = 0;
  for (const Replica& replica : space.legal) {
    if (fitting >= top && judge.replicas(replica) < last_replicas) {
      break;
    }
    const ServingPlan& plan = plans.emplace_back(judge.judge(replica));
    if (plan.fits) {
      ++fitting;
      last_replicas = plan.replicas;
    }
  }
  std::sort(plans.begin(), plans.end(),
            [&](const ServingPlan& a, const ServingPlan& b) { return is_better(question, a, b); });
  return plans;
}

void cut(std::vector<ServingPlan>& plans, std::int64_t top) {
  plans.resize(std::min(plans.size(), static_cast<std::size_t>(top)));
}

}  // namespace

std::vector<ServingPlan> ranked_plans(const ServingQuestion& question, std::int64_t top,
                                      ServingAnswer& answer) {
  ServingSpace space = serving_space(question);
  std::vector<ServingPlan> plans =
      judged_plans(question, std::move(space), ServingJudge(question), top, answer);
  cut(plans, top);
  return plans;
}

ServingAnswer answer_serving(const ServingQuestion& question, std::int64_t top) {
  const auto start = std::chrono::steady_clock::now();
  ServingAnswer answer;
  answer.kv_bytes_per_token = kv_bytes_per_token(question.model, question.keys.kv_dtype);
  ServingSpace space = serving_space(question);
  const ServingJudge judge(question);
  const std::vector<ServingPlan> judged = judged_plans(question, std::move(space), judge, top, answer);
  answer.plans = judged;
  cut(answer.plans, top);
  for (ServingPlan& plan : answer.plans) {
    plan.levels = serving_levels(question.cluster, plan.replica);
    plan.reasons = serving_reasons(question, judge, plan, nearest_smaller(question, judged, plan));
  }
  answer.warnings = serving_warnings(question, answer.plans.front());
  if (!answer.plans.front().fits) {
    add_serving_fixes(question, judged, answer);
  }
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  answer.seconds = taken.count();
  return answer;
}

}  // namespace ndmesh::plan
