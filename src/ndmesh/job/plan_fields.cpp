#include "ndmesh/job/field_kinds.h"
#include "ndmesh/job/field_lists.h"

namespace ndmesh::job {
namespace {

constexpr NumberRange positive = {0, 1e18};

Field cluster_field() {
  return {"cluster",
          "text or mapping",
          "8xH100-SXM, 64x8xH100-SXM, {nodes: 64, node: 8xH100-SXM, ...}, or a file of the same keys",
          "The devices to plan for; nothing: this machine",
          [](const Job& job) { return job.cluster.empty() ? "\"\"" : job.cluster; },
          [](Job& job, const YamlNode& node) {
            if (node.kind == YamlNode::Kind::list) {
              refuse(node, "a text or a mapping");
            }
            const bool is_empty = node.kind == YamlNode::Kind::null ||
                                  (node.kind == YamlNode::Kind::scalar && node.scalar.empty());
            job.cluster = is_empty ? "" : yaml_of(node);
          }};
}

}  // namespace

std::vector<Field> planning_fields() {
  return {
      cluster_field(),
      choice<PlanTask>("plan.task", {{"train", PlanTask::train}, {"serve", PlanTask::serve}},
                       "What the cluster is wanted for", at(&Job::plan, &PlanSection::task)),
      named("plan.runtime", {"ndmesh", "megatron", "torchtitan", "deepspeed", "accelerate"},
            "The framework that will run the plan: its bytes, overlaps and legal meshes",
            at(&Job::plan, &PlanSection::runtime)),
      number("plan.headroom", {0, 0.9}, "Share of usable device memory that a plan leaves free",
             at(&Job::plan, &PlanSection::headroom)),
      integer("plan.max_batch", {0, 1 << 30},
              "Sequences up to which batch.global may grow, by doubling; 0: it is fixed",
              at(&Job::plan, &PlanSection::max_batch)),
      number("plan.tokens_per_second", positive, "Wanted of the whole cluster; 0: as many as it gives",
             at(&Job::plan, &PlanSection::tokens_per_second)),
      number("plan.tokens", positive, "Tokens of the whole training, wanted within plan.days",
             at(&Job::plan, &PlanSection::tokens)),
      number("plan.days", {0, 1e6}, "Days for plan.tokens; 0: no matter", at(&Job::plan, &PlanSection::days)),
  };
}

}  // namespace ndmesh::job
