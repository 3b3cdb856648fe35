#include <fmt/format.h>

#include "ndmesh/base/error.h"
#include "ndmesh/plan/serving/serving.h"

namespace ndmesh::plan {
namespace {

/// A size that the job gives; what it leaves out is searched.
std::optional<std::int64_t> given(const job::Job& job, std::string_view key, std::int64_t size) {
  return job.is_given(key) ? std::optional(size) : std::nullopt;
}

}  // namespace

ServingQuestion serving_question(const job::Job& job, const model::ModelSpec& model,
                                 const cluster::Cluster& cluster) {
  Problems problems;
  const auto refuse = [&](std::string_view key, std::int64_t size) {
    if (size > 1) {
      problems.add(fmt::format(
          "{}: {} has no use in serving, where a replica is tp x pp, and ep for experts; allowed: 1", key,
          size));
    }
  };
  refuse("mesh.cp_size", job.mesh.cp);
  refuse("mesh.dp_shard_size", job.mesh.dp_shard);
  problems.raise();
  return {.model = model,
          .cluster = cluster,
          .keys = job.plan.serving,
          .headroom = job.plan.headroom,
          .held = {.tp = given(job, "mesh.tp_size", job.mesh.tp),
                   .pp = given(job, "mesh.pp_size", job.mesh.pp),
                   .ep = given(job, "mesh.ep_size", job.mesh.ep),
                   .etp = given(job, "mesh.etp_size", job.mesh.etp),
                   .dp_replicate = given(job, "mesh.dp_replicate_size", job.mesh.dp_replicate)}};
}

std::int64_t context_of(const ServingQuestion& question) {
  return question.keys.context > 0 ? question.keys.context : question.model.max_positions;
}

std::int64_t mean_context_of(const ServingQuestion& question) {
  return question.keys.mean_context > 0 ? question.keys.mean_context : context_of(question);
}

mesh::MeshSizes Replica::mesh(std::int64_t replicas) const {
  return {.tp = tp, .dp_replicate = attention_ranks * replicas, .pp = pp, .ep = ep, .etp = etp};
}

}  // namespace ndmesh::plan
