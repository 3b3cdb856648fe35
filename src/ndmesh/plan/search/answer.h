#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ndmesh/plan/search/question.h"
#include "ndmesh/plan/search/search.h"
#include "ndmesh/plan/warning.h"

namespace ndmesh::plan {

/// A layout that people try first, beside the winners.
struct Baseline {
  std::string name;  ///< "one device", "plain data parallel", "zero 3 over all", "hybrid"
  mesh::MeshSizes mesh;
  std::optional<Plan> plan;         ///< its best candidate
  std::vector<std::string> broken;  ///< the rules that it breaks, when it has none
};

/// A change to the job with which it fits, priced.
struct Fix {
  std::string change;        ///< in the key names of a job: "shard.offload=optimizer"
  std::int64_t devices = 0;  ///< of the cluster that it is for
  Plan plan;
};

/// The best that can be done without one axis: what its use is measured against.
struct Without {
  std::string axis;          ///< "tp", ..., "ep"
  std::optional<Plan> plan;  ///< nothing when no candidate without it is legal
};

/// Everything that a plan says.
struct TrainingAnswer {
  TrainingQuestion question;
  std::int64_t allowed_bytes = 0;   ///< of a device: usable less headroom
  SearchResult result;              ///< of all batches; counts are sums
  std::vector<Baseline> baselines;  ///< with the batch of the first plan
  std::vector<Without> without;     ///< of the axes that some plan uses
  std::vector<Warning> warnings;    ///< about the first plan
  std::vector<Fix> fixes;           ///< when nothing fits, or what is wanted is not reached

  bool fits() const { return !result.plans.empty() && result.plans.front().fits; }
};

/// Searches, compares and explains. RequestError as search().
TrainingAnswer answer(const TrainingQuestion& question, std::int64_t top);

/// Tokens of a step over its time, of the whole cluster.
double tokens_per_second(const Problem& problem, const Plan& plan);

/// The same as search() for the best plan only; nothing when nothing is legal.
std::optional<Plan> best_plan(const Problem& problem, const Held& held);
/// The same of all batches of a question's range.
std::optional<Plan> best_plan(const TrainingQuestion& question);

// The parts of an answer, in its order.
std::vector<Baseline> baselines_of(const TrainingQuestion& question);
std::vector<Without> without_axes(const TrainingQuestion& question, const std::vector<Plan>& plans);
/// One sentence for each used axis: what it relieves, by the best plan that does without it.
std::vector<std::string> reasons_of(const TrainingAnswer& answer, const Plan& plan);
std::vector<Warning> warnings_of(const TrainingAnswer& answer);
std::vector<Fix> fixes_of(const TrainingAnswer& answer);

/// Exposed seconds of the collectives over an axis; those of cp+dp_shard are dp_shard's.
double exposed_over(const Plan& plan, std::string_view axis);
/// What a plan that does not fit needs, of how much: on the device, in host memory, or both.
std::string shortage(const TrainingAnswer& answer, const Plan& plan);

/// One row of the table of warnings.
struct WarningKind {
  std::string name;
  std::string condition;
};
std::vector<WarningKind> all_warnings();

/// The seven steps from the cluster to the candidates that are worth a benchmark, one paragraph each.
std::vector<std::string> explanation_of(const TrainingAnswer& answer);

/// "interleaved x 4": a plan's schedule and chunks; a list by its file's name.
std::string schedule_text(const Plan& plan);

/// "dp_shard=8,tp=8  micro 2 x 16, 1f1b, zero 1, recompute full": a candidate on one line.
std::string describe(const Plan& plan);

}  // namespace ndmesh::plan
