#include "ndmesh/plan/serving/serving_space.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "ndmesh/base/error.h"
#include "ndmesh/mesh/rules.h"
#include "ndmesh/plan/integers.h"

namespace ndmesh::plan {
namespace {

void check_lengths(const ServingQuestion& question, Problems& problems) {
  const std::int64_t positions = question.model.max_positions;
  const std::int64_t context = context_of(question);
  if (context <= 0) {
    problems.add(
        "plan.context is not given, and the model says no max_position_embeddings; allowed: 1 or more");
  }
  if (positions > 0 && context > positions) {
    problems.add(
        fmt::format("plan.context: {} is more than the {} positions of the model (max_position_embeddings)",
                    context, positions));
  }
  if (mean_context_of(question) > context) {
    problems.add(fmt::format("plan.mean_context: {} is more than plan.context {}; allowed: up to {}",
                             mean_context_of(question), context, context));
  }
}

void check_policy(const job::ServingKeys& keys, Problems& problems) {
  const bool prefix = keys.kv_policy == job::KvPolicy::prefix;
  if (prefix && keys.prefix_share == 0) {
    problems.add(
        "plan.kv_policy: prefix needs plan.prefix_share, the share of a sequence that all have in common; "
        "allowed: above 0, up to 1, or plan.kv_policy paged");
  }
  if (!prefix && keys.prefix_share > 0) {
    problems.add(fmt::format(
        "plan.prefix_share: {} means nothing under this plan.kv_policy; allowed: plan.kv_policy prefix, or 0",
        keys.prefix_share));
  }
  const bool reserve = keys.kv_policy == job::KvPolicy::reserve;
  if (reserve && keys.mean_context > 0 && keys.mean_context != keys.context) {
    problems.add(fmt::format(
        "plan.mean_context: {} means nothing under plan.kv_policy reserve, where every sequence has room for "
        "plan.context; allowed: plan.kv_policy paged, or 0",
        keys.mean_context));
  }
}

/// What is held by itself: open sizes are 1, but for the attention ranks that held expert sizes need.
mesh::MeshSizes held_sizes(const HeldServing& held) {
  const std::int64_t tp = held.tp.value_or(1);
  const std::int64_t ep = held.ep.value_or(1);
  const std::int64_t etp = held.etp.value_or(1);
  const std::int64_t experts = ep * etp;
  return {.tp = tp,
          .dp_replicate = held.dp_replicate.value_or(experts / std::gcd(experts, tp)),
          .pp = held.pp.value_or(1),
          .ep = ep,
          .etp = etp};
}

void check_held(const ServingQuestion& question, Problems& problems) {
  const mesh::MeshSizes sizes = held_sizes(question.held);
  problems.add_all(mesh::broken_rules(mesh::rule_input(question.model, sizes)));
  const std::int64_t devices = question.cluster.devices();
  if (sizes.world() > devices) {
    problems.add(fmt::format("mesh: {} takes {} ranks, but the cluster has {} devices", sizes.name(),
                             sizes.world(), devices));
  }
}

void check(const ServingQuestion& question) {
  Problems problems;
  if (question.cluster.usable_bytes <= 0) {
    problems.add(fmt::format("cluster: the usable memory of {} is not known; a budget needs it",
                             question.cluster.device.name));
  }
  check_lengths(question, problems);
  check_policy(question.keys, problems);
  check_held(question, problems);
  problems.raise();
}

/// Walks the space.
class Walk {
 public:
  explicit Walk(const ServingQuestion& question)
      : question_(question), held_(question.held), devices_(question.cluster.devices()) {}

  ServingSpace run() {
    const std::int64_t kv_heads = std::max<std::int64_t>(1, question_.model.kv_heads);
    for (const std::int64_t tp : mesh::legal_tp_sizes(question_.model.heads, kv_heads, true)) {
      if (tp == held_.tp.value_or(tp) && tp <= devices_) {
        add_expert_shapes(tp);
      }
    }
    return std::move(space_);
  }

 private:
  void add_expert_shapes(std::int64_t tp) {
    if (!question_.model.experts) {
      return add_stages({.tp = tp});
    }
    const std::vector<std::int64_t> etps = held_.etp ? std::vector{*held_.etp} : divisors(tp);
    for (const std::int64_t ep : divisors(question_.model.experts->count)) {
      for (const std::int64_t etp : etps) {
        if (ep == held_.ep.value_or(ep) && ep <= devices_ / etp && ep * etp % tp == 0) {
          add_stages({.tp = tp, .attention_ranks = ep * etp / tp, .ep = ep, .etp = etp});
        }
      }
    }
  }

  void add_stages(Replica replica) {
    const std::int64_t most = std::min(question_.model.layers, devices_ / replica.ranks());
    for (replica.pp = held_.pp.value_or(1); replica.pp <= held_.pp.value_or(most); ++replica.pp) {
      add(replica);
    }
  }

  void add(const Replica& replica) {
    ++space_.judged;
    const std::int64_t caches = held_.dp_replicate.value_or(replica.attention_ranks);
    const bool fits = caches % replica.attention_ranks == 0 &&
                      caches / replica.attention_ranks <= devices_ / replica.ranks();
    if (fits && mesh::is_legal(mesh::rule_input(question_.model, replica.mesh()))) {
      space_.legal.push_back(replica);
    }
  }

  const ServingQuestion& question_;
  const HeldServing& held_;
  std::int64_t devices_;
  ServingSpace space_;
};

}  // namespace

ServingSpace serving_space(const ServingQuestion& question) {
  check(question);
  ServingSpace space = Walk(question).run();
  if (space.legal.empty()) {
    throw RequestError(fmt::format(
        "mesh: no replica with {} is legal on {} devices: a stage spreads its experts over all its ranks, so "
        "mesh.ep_size x mesh.etp_size is mesh.tp_size or a multiple of it that the devices hold",
        held_sizes(question.held).name(), question.cluster.devices()));
  }
  return space;
}

}  // namespace ndmesh::plan
