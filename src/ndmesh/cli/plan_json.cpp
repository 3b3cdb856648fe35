#include "ndmesh/cli/plan_json.h"

#include "ndmesh/cli/plan_parts_json.h"
#include "ndmesh/job/names.h"

namespace ndmesh::cli {
namespace {

using Json = nlohmann::ordered_json;
using plan::Plan;

Json recompute_json(const job::Recompute& recompute) {
  using Policy = job::Recompute::Policy;
  switch (recompute.policy) {
    case Policy::every:
      return {{"every", recompute.layers}};
    case Policy::budget:
      return {{"budget", recompute.bytes}};
    default:
      return name_of(recompute.policy);
  }
}

/// The categories at the moment of the peak, and what is left free on purpose.
MemoryBytes memory_of(const plan::StageBudget& budget, std::int64_t headroom) {
  MemoryBytes bytes = budget.at_peak;
  bytes[MemoryCategory::headroom] = headroom;
  return bytes;
}

Json time_json(const plan::StepTime& time) {
  return {{"compute", time.compute},     {"exposed", time.exposed}, {"bubble", time.bubble},
          {"optimizer", time.optimizer}, {"input", time.input},     {"checkpoint", time.checkpoint},
          {"other", time.other}};
}

Json exposed_json(const plan::StepTime& time) {
  Json json = Json::object();
  for (const plan::Exposed& entry : time.by_collective) {
    json[entry.what] = {{"skew", 0.0}, {"transfer", entry.seconds}};
  }
  return json;
}

Json levels_json(const Plan& plan) {
  Json json = Json::object();
  for (const plan::AxisLevel& level : plan.levels) {
    json[level.axis] = level.level;
  }
  return json;
}

Json stages_json(const std::vector<plan::StageBudget>& stages, std::int64_t headroom) {
  Json json = Json::array();
  for (const plan::StageBudget& budget : stages) {
    json.push_back({{"stage", budget.stage},
                    {"rank", budget.rank},
                    {"memory", memory_json(memory_of(budget, headroom))},
                    {"reserved_bytes", budget.reserved},
                    {"outside_bytes", budget.outside},
                    {"host_bytes", budget.host_bytes}});
  }
  return json;
}

Json plan_json(const plan::TrainingAnswer& answer, const Plan& plan) {
  const plan::Candidate& c = plan.candidate;
  const std::int64_t usable = answer.question.problem.cluster.usable_bytes;
  return {{"mesh", mesh_json(c.mesh)},
          {"order", order_json(c.order)},
          {"global_batch", plan.global_batch},
          {"micro", c.micro},
          {"micro_batches", micro_batches(plan)},
          {"schedule", plan.schedule_file.empty() ? name_of(c.schedule) : plan.schedule_file},
          {"chunks", c.chunks},
          {"zero", c.zero},
          {"reshard", c.reshard},
          {"recompute", recompute_json(c.recompute)},
          {"offload", name_of(c.offload)},
          {"offload_activations", c.offload_activations},
          {"levels", levels_json(plan)},
          {"worst_rank", plan.worst.rank},
          {"worst_stage", plan.worst.stage},
          {"memory", memory_json(memory_of(plan.worst, usable - answer.allowed_bytes))},
          {"reserved_bytes", plan.worst.reserved},
          {"outside_bytes", plan.worst.outside},
          {"host_bytes", plan.worst.host_bytes},
          {"node_host_bytes", plan.node_host_bytes},
          {"usable_bytes", usable},
          {"fits", plan.fits},
          {"bubble", plan.time.bubble_share},
          {"step_seconds", plan.time.seconds},
          {"tokens_per_second", tokens_per_second(answer.question.problem, plan)},
          {"tokens_per_second_per_device", plan.time.tokens_per_second_per_device},
          {"mfu", plan.time.mfu > 0 ? Json(plan.time.mfu) : Json(nullptr)},
          {"time", time_json(plan.time)},
          {"exposed", exposed_json(plan.time)},
          {"reasons", plan.reasons},
          {"layers", plan.layers},
          {"stages", stages_json(plan.stages, usable - answer.allowed_bytes)}};
}

Json baseline_json(const plan::TrainingAnswer& answer, const plan::Baseline& row) {
  Json json = {{"name", row.name}, {"legal", row.plan.has_value()}};
  if (!row.plan) {
    json["mesh"] = mesh_json(row.mesh);
    json["fits"] = false;
    json["reasons"] = row.broken;
    return json;
  }
  json.update(plan_json(answer, *row.plan));
  return json;
}

}  // namespace

nlohmann::ordered_json to_json(const plan::TrainingAnswer& answer, bool with_explanation) {
  Json json = {{"task", "train"},
               {"runtime", answer.question.problem.profile.name},
               {"legal", answer.result.legal},
               {"judged", answer.result.judged},
               {"simulated", answer.result.simulated},
               {"seconds", answer.result.seconds},
               {"assumed", answer.question.assumed},
               {"plans", Json::array()},
               {"baselines", Json::array()},
               {"warnings", warnings_json(answer.warnings)},
               {"fixes", Json::array()}};
  for (const Plan& plan : answer.result.plans) {
    json["plans"].push_back(plan_json(answer, plan));
  }
  for (const plan::Baseline& row : answer.baselines) {
    json["baselines"].push_back(baseline_json(answer, row));
  }
  for (const plan::Fix& fix : answer.fixes) {
    Json entry = {{"change", fix.change}, {"devices", fix.devices}};
    entry.update(plan_json(answer, fix.plan));
    json["fixes"].push_back(std::move(entry));
  }
  if (with_explanation) {
    json["explanation"] = explanation_of(answer);
  }
  return json;
}

}  // namespace ndmesh::cli
