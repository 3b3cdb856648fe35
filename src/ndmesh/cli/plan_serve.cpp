#include "ndmesh/cli/plan_serve.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "ndmesh/base/units.h"
#include "ndmesh/cli/command.h"
#include "ndmesh/cli/plan_parts_json.h"

namespace ndmesh::cli {
namespace {

using Json = nlohmann::ordered_json;
using plan::ServingAnswer;
using plan::ServingFix;
using plan::ServingPlan;
using plan::ServingQuestion;

// JSON: the keys of a training plan where they mean the same.

Json levels_json(const ServingPlan& plan) {
  Json json = Json::object();
  for (const mesh::Axis axis : mesh::all_axes) {
    const std::size_t at = static_cast<std::size_t>(axis);
    if (at < plan.levels.size() && !plan.levels[at].empty()) {
      json[std::string(name_of(axis))] = plan.levels[at];
    }
  }
  return json;
}

Json plan_json(const ServingPlan& plan, std::int64_t usable_bytes) {
  return {{"mesh", mesh_json(plan.mesh())},
          {"order", order_json(plan::serving_order)},
          {"levels", levels_json(plan)},
          {"replicas", plan.replicas},
          {"ranks_per_replica", plan.replica.ranks()},
          {"attention_ranks", plan.replica.attention_ranks},
          {"worst_rank", plan.worst.rank},
          {"worst_stage", plan.worst.stage},
          {"memory", memory_json(plan.memory)},
          {"outside_bytes", plan.worst.outside},
          {"usable_bytes", usable_bytes},
          {"fits", plan.fits},
          {"concurrency", plan.concurrency},
          {"max_context", plan.max_context},
          {"kv_bytes_per_token", plan.worst.cache.per_token()},
          {"reasons", plan.reasons}};
}

Json answer_json(const ServingQuestion& question, const ServingAnswer& answer) {
  Json json = {{"task", "serve"},
               {"legal", answer.legal},
               {"judged", answer.judged},
               {"simulated", 0},
               {"seconds", answer.seconds},
               {"context", context_of(question)},
               {"mean_context", mean_context_of(question)},
               {"kv_bytes_per_token", answer.kv_bytes_per_token},
               {"plans", Json::array()},
               {"baselines", Json::array()},
               {"warnings", warnings_json(answer.warnings)},
               {"fixes", Json::array()}};
  for (const ServingPlan& plan : answer.plans) {
    json["plans"].push_back(plan_json(plan, question.cluster.usable_bytes));
  }
  for (const ServingFix& fix : answer.fixes) {
    Json entry = {{"change", fix.change}, {"devices", fix.devices}};
    entry.update(plan_json(fix.plan, question.cluster.usable_bytes));
    json["fixes"].push_back(std::move(entry));
  }
  return json;
}

// Text

void print_question(const ServingQuestion& question, const ServingAnswer& answer) {
  fmt::print("{} parameters on {} x {} with {} usable each\n", grouped(question.model.parameter_count()),
             question.cluster.devices(), question.cluster.device.name,
             binary_bytes(question.cluster.usable_bytes));
  fmt::print("sequences of up to {} tokens, {} on average; {} of cache for a token\n",
             grouped(context_of(question)), grouped(mean_context_of(question)),
             binary_bytes(answer.kv_bytes_per_token));
  fmt::print("{} of {} replicas legal, in {}; ranked by memory, times of serving are not predicted yet\n\n",
             answer.legal, answer.judged, duration(answer.seconds));
}

void print_table(const ServingAnswer& answer) {
  fmt::print("{:<34}{:>9}{:>8}{:>13}{:>13}  {}\n", "mesh", "replicas", "ranks", "sequences", "longest",
             "fits");
  for (const ServingPlan& plan : answer.plans) {
    fmt::print("{:<34}{:>9}{:>8}{:>13}{:>13}  {}\n", plan.mesh().name(), plan.replicas, plan.replica.ranks(),
               grouped(plan.concurrency), grouped(plan.max_context), plan.fits ? "yes" : "no");
  }
}

/// The rank that limits, line by line.
void print_memory(const ServingPlan& plan, std::int64_t usable_bytes) {
  fmt::print("\n{}: rank {} (stage {}) limits\n", plan.mesh().name(), plan.worst.rank, plan.worst.stage);
  for (std::size_t i = 0; i < memory_category_count; ++i) {
    if (plan.memory.by_category[i] > 0) {
      fmt::print("  {:<16}{:>14}\n", memory_category_names[i], binary_bytes(plan.memory.by_category[i]));
    }
  }
  fmt::print("  {:<16}{:>14} of {}; {} of it in no tensor: device context and communicators\n", "sum",
             binary_bytes(plan.memory.total()), binary_bytes(usable_bytes), binary_bytes(plan.worst.outside));
}

void print_list(const char* title, const std::vector<std::string>& lines) {
  if (!lines.empty()) {
    fmt::print("\n{}\n  {}\n", title, fmt::join(lines, "\n  "));
  }
}

void print_warnings(const std::vector<plan::Warning>& warnings) {
  std::vector<std::string> lines;
  for (const plan::Warning& warning : warnings) {
    lines.push_back(warning.name + ": " + warning.text);
  }
  print_list("warnings", lines);
}

void print_fixes(const std::vector<ServingFix>& fixes) {
  if (!fixes.empty()) {
    fmt::print("\nways to fit\n");
  }
  for (const ServingFix& fix : fixes) {
    fmt::print("  {:<40} {} ({} replicas): {} sequences at once, longest {}\n", fix.change,
               fix.plan.mesh().name(), fix.plan.replicas, grouped(fix.plan.concurrency),
               grouped(fix.plan.max_context));
  }
}

void print_answer(const ServingQuestion& question, const ServingAnswer& answer, bool explain) {
  print_question(question, answer);
  print_table(answer);
  const std::size_t shown = explain ? answer.plans.size() : 1;
  for (std::size_t i = 0; i < shown; ++i) {
    print_memory(answer.plans[i], question.cluster.usable_bytes);
    print_list("why", answer.plans[i].reasons);
  }
  print_warnings(answer.warnings);
  if (!answer.plans.front().fits) {
    fmt::print("\nnothing fits\n");
  }
  print_fixes(answer.fixes);
}

}  // namespace

int plan_serve(const plan::ServingQuestion& question, const PlanServeOptions& options) {
  const ServingAnswer answer = answer_serving(question, options.top);
  if (options.json) {
    print_json(answer_json(question, answer));
  } else {
    print_answer(question, answer, options.explain);
  }
  return done;
}

}  // namespace ndmesh::cli
