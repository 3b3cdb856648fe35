#include "ndmesh/plan/serving/serving_fixes.h"

#include <fmt/format.h>

#include <algorithm>

#include "ndmesh/base/error.h"
#include "ndmesh/job/names.h"
#include "ndmesh/plan/serving/serving_placement.h"

namespace ndmesh::plan {
namespace {

constexpr std::int64_t most_nodes = 4096;  // that fewest devices are looked for in
constexpr std::int64_t small_chunk = 512;

std::int64_t bits(job::WeightFormat format) {
  switch (format) {
    case job::WeightFormat::bfloat16:
      return 16;
    case job::WeightFormat::fp8:
    case job::WeightFormat::int8:
      return 8;
    case job::WeightFormat::int4:
      break;
  }
  return 4;
}

class Fixes {
 public:
  Fixes(const ServingQuestion& question, const std::vector<ServingPlan>& plans, ServingAnswer& answer)
      : question_(question),
        plans_(plans),
        answer_(answer),
        has_fp8_(question.cluster.device.fp8_flops > 0) {}

  void run() {
    try_formats();
    try_lengths();
    try_mesh();
    try_chunk();
    if (answer_.fixes.empty()) {
      try_all_formats();
    }
    try {
      try_devices();
    } catch (const RequestError& error) {  // what joins more nodes is not known
      answer_.warnings.push_back({"fewest devices", std::string("not known: ") + error.what()});
    }
  }

 private:
  /// Keeps the change when it makes a plan fit.
  void consider(const std::string& change, const ServingQuestion& changed) {
    ServingAnswer counts;
    std::vector<ServingPlan> best = ranked_plans(changed, 1, counts);
    if (best.empty() || !best.front().fits) {
      return;
    }
    best.front().levels = serving_levels(changed.cluster, best.front().replica);
    answer_.fixes.push_back({change, std::move(best.front()), changed.cluster.devices()});
  }

  void try_weights(job::WeightFormat format) {
    if (bits(format) < bits(question_.keys.weights)) {
      ServingQuestion changed = question_;
      changed.keys.weights = format;
      consider(fmt::format("plan.weights={}", name_of(format)), changed);
    }
  }

  bool kv_is_wide() const {
    return question_.keys.kv_dtype == job::KvFormat::float32 ||
           question_.keys.kv_dtype == job::KvFormat::bfloat16;
  }

  std::string set_small_kv(ServingQuestion& changed) const {
    changed.keys.kv_dtype = has_fp8_ ? job::KvFormat::fp8 : job::KvFormat::int8;
    return fmt::format("plan.kv_dtype={}", name_of(changed.keys.kv_dtype));
  }

  void try_formats() {
    try_weights(has_fp8_ ? job::WeightFormat::fp8 : job::WeightFormat::int8);
    try_weights(job::WeightFormat::int4);
    if (kv_is_wide()) {
      ServingQuestion changed = question_;
      const std::string change = set_small_kv(changed);
      consider(change, changed);
    }
  }

  void try_lengths() {
    std::int64_t longest = 0;
    std::int64_t sequences = 0;
    for (const ServingPlan& plan : plans_) {
      longest = std::max(longest, plan.max_context);
      sequences = std::max(sequences, plan.max_context >= context_of(question_) ? plan.concurrency : 0);
    }
    if (longest > 0 && longest < context_of(question_)) {
      ServingQuestion changed = question_;
      changed.keys.context = longest;
      changed.keys.mean_context = std::min(longest, question_.keys.mean_context);
      consider(fmt::format("plan.context={}", longest), changed);
    }
    if (sequences > 0 && sequences < question_.keys.concurrency) {
      ServingQuestion changed = question_;
      changed.keys.concurrency = sequences;
      consider(fmt::format("plan.concurrency={}", sequences), changed);
    }
  }

  void try_mesh() {
    const HeldServing& held = question_.held;
    if (held.tp || held.pp || held.ep || held.etp || held.dp_replicate) {
      ServingQuestion changed = question_;
      changed.held = {};
      consider("no mesh sizes given", changed);
    }
  }

  void try_chunk() {
    if (question_.keys.prefill_chunk > small_chunk) {
      ServingQuestion changed = question_;
      changed.keys.prefill_chunk = small_chunk;
      consider(fmt::format("plan.prefill_chunk={}", small_chunk), changed);
    }
  }

  void try_all_formats() {
    if (question_.keys.weights != job::WeightFormat::int4 && kv_is_wide()) {
      ServingQuestion changed = question_;
      changed.keys.weights = job::WeightFormat::int4;
      const std::string change = set_small_kv(changed);
      consider("plan.weights=int4 " + change, changed);
    }
  }

  bool fits_on(std::int64_t nodes) const {
    ServingQuestion changed = question_;
    changed.cluster = cluster::resized(question_.cluster, nodes * question_.cluster.devices_per_node);
    ServingAnswer counts;
    const std::vector<ServingPlan> best = ranked_plans(changed, 1, counts);
    return !best.empty() && best.front().fits;
  }

  /// More nodes never hold less, so the least number is found by halving.
  void try_devices() {
    std::int64_t lacking = question_.cluster.nodes;
    std::int64_t enough = 2 * lacking;
    while (enough <= most_nodes && !fits_on(enough)) {
      lacking = enough;
      enough *= 2;
    }
    if (enough > most_nodes) {
      return;
    }
    while (enough - lacking > 1) {
      const std::int64_t middle = lacking + (enough - lacking) / 2;
      (fits_on(middle) ? enough : lacking) = middle;
    }
    ServingQuestion changed = question_;
    changed.cluster = cluster::resized(question_.cluster, enough * question_.cluster.devices_per_node);
    consider(fmt::format("{} devices in {} nodes", changed.cluster.devices(), enough), changed);
  }

  const ServingQuestion& question_;
  const std::vector<ServingPlan>& plans_;
  ServingAnswer& answer_;
  bool has_fp8_;
};

}  // namespace

void add_serving_fixes(const ServingQuestion& question, const std::vector<ServingPlan>& plans,
                       ServingAnswer& answer) {
  Fixes(question, plans, answer).run();
}

}  // namespace ndmesh::plan
