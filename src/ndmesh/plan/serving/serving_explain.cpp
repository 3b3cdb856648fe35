#include "ndmesh/plan/serving/serving_explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "ndmesh/base/units.h"
#include "ndmesh/mesh/rules.h"
#include "ndmesh/plan/integers.h"
#include "ndmesh/plan/serving/serving_placement.h"

namespace ndmesh::plan {
namespace {

std::int64_t weights(const ServingPlan& plan) {
  return plan.worst.bytes[MemoryCategory::parameters];
}

const std::string& level(const ServingPlan& plan, mesh::Axis axis) {
  return plan.levels[static_cast<std::size_t>(axis)];
}

class Reasons {
 public:
  Reasons(const ServingQuestion& question, const ServingJudge& judge, const ServingPlan& plan)
      : question_(question), judge_(judge), plan_(plan), replica_(plan.replica) {}

  std::vector<std::string> run(const ServingPlan* smaller) {
    if (replica_.tp > 1) list_.push_back(tp());
    if (replica_.pp > 1) list_.push_back(pp());
    if (replica_.ep > 1) list_.push_back(ep());
    if (replica_.attention_ranks > 1) list_.push_back(attention_ranks());
    if (plan_.replicas > 0) list_.push_back(replicas(smaller));
    return std::move(list_);
  }

 private:
  std::string tp() const {
    Replica whole = {.pp = replica_.pp};
    if (question_.model.experts) {
      whole.attention_ranks = replica_.attention_ranks;
      whole.ep = replica_.attention_ranks;
    }
    const bool comparable = !question_.model.experts || question_.model.experts->count % whole.ep == 0;
    const std::string instead =
        comparable ? " instead of " + binary_bytes(weights(judge_.judge(whole))) : std::string();
    return fmt::format(
        "tp {}: heads, matrices and vocabulary are cut; a rank holds {} of weights{} and {} of cache for a "
        "token; norms stay whole; two sums over tp a layer wait on {}",
        replica_.tp, binary_bytes(weights(plan_)), instead, binary_bytes(plan_.worst.cache.per_token()),
        level(plan_, mesh::Axis::tp));
  }

  std::string pp() const {
    Replica flat = replica_;
    flat.pp = 1;
    const std::int64_t layers = question_.model.layers;
    return fmt::format(
        "pp {}: layers are cut, at most {} of {} on a rank, with their cache only; weights {} instead of {}; "
        "every token passes {} stages one after another, over {}",
        replica_.pp, ceil_div(layers, replica_.pp), layers, binary_bytes(weights(plan_)),
        binary_bytes(weights(judge_.judge(flat))), replica_.pp, level(plan_, mesh::Axis::pp));
  }

  std::string ep() const {
    const std::int64_t experts = question_.model.experts->count;
    return fmt::format(
        "ep {}: experts are cut, {} of {} of each layer on a rank; attention is not; tokens travel to their "
        "experts and back over {}, and the busiest expert rank makes the others wait",
        replica_.ep, experts / replica_.ep, experts,
        level(plan_, replica_.attention_ranks > 1 ? mesh::Axis::dp_replicate : mesh::Axis::tp));
  }

  std::string attention_ranks() const {
    return fmt::format(
        "dp_replicate: {} ranks of a replica hold caches of different sequences, each with all attention "
        "weights{}; they meet only at the experts",
        replica_.attention_ranks,
        question_.model.latent ? ", because tp would copy the latent cache instead of cutting it" : "");
  }

  std::string replicas(const ServingPlan* smaller) const {
    const std::string why =
        smaller == nullptr
            ? std::string()
            : fmt::format("; smaller ones do not fit: the nearest, {}, lacks {} a rank",
                          smaller->mesh().name(),
                          binary_bytes(std::max<std::int64_t>(0, excess(question_, *smaller))));
    return fmt::format("replicas {}: each on {} of {} devices, with sequences of its own{}", plan_.replicas,
                       replica_.ranks(), question_.cluster.devices(), why);
  }

  const ServingQuestion& question_;
  const ServingJudge& judge_;
  const ServingPlan& plan_;
  const Replica& replica_;
  std::vector<std::string> list_;
};

// Warnings.

struct Doubted {
  const ServingQuestion& question;
  const ServingPlan& plan;
};

std::optional<std::string> estimated(const Doubted& doubted) {
  if (!doubted.question.model.estimated()) return std::nullopt;
  return "the model is known by its size only: shape, heads and so the cache are estimated; give its "
         "config.json";
}

std::optional<std::string> tp_between_nodes(const Doubted& doubted) {
  if (!tp_leaves_domain(doubted.question.cluster, doubted.plan.replica)) return std::nullopt;
  return fmt::format("tp {} crosses {}: two sums a layer go over it for every token", doubted.plan.replica.tp,
                     level(doubted.plan, mesh::Axis::tp));
}

std::optional<std::string> copied_cache(const Doubted& doubted) {
  const std::int64_t tp = doubted.plan.replica.tp;
  const model::ModelSpec& model = doubted.question.model;
  if (tp == 1 || (!model.latent && tp <= model.kv_heads)) return std::nullopt;
  if (model.latent) return fmt::format("the latent cache is held whole by each of the {} tp ranks", tp);
  return fmt::format("tp {} exceeds the {} KV heads: each is cached by {} ranks", tp, model.kv_heads,
                     tp / model.kv_heads);
}

std::optional<std::string> idle_devices(const Doubted& doubted) {
  const std::int64_t used = doubted.plan.replicas * doubted.plan.replica.ranks();
  const std::int64_t idle = doubted.question.cluster.devices() - used;
  if (idle <= 0) return std::nullopt;
  return fmt::format("{} of {} devices stay idle: replicas of {} ranks do not fill the nodes", idle,
                     doubted.question.cluster.devices(), doubted.plan.replica.ranks());
}

/// One replica on twice the devices against two as they are: weights are then held once instead of twice.
std::optional<std::string> scarce_cache(const Doubted& doubted) {
  const ServingPlan& plan = doubted.plan;
  Replica doubled = plan.replica;
  doubled.tp *= 2;
  const std::vector<std::int64_t> legal = mesh::legal_tp_sizes(
      doubted.question.model.heads, std::max<std::int64_t>(1, doubted.question.model.kv_heads), true);
  const bool possible = std::find(legal.begin(), legal.end(), doubled.tp) != legal.end();
  if (!plan.fits || plan.replicas < 2 || doubted.question.model.experts || !possible) return std::nullopt;
  ServingQuestion freed = doubted.question;
  freed.held = {};
  const ServingPlan wider = ServingJudge(freed).judge(doubled);
  if (wider.concurrency < 3 * plan.concurrency / 2) return std::nullopt;
  return fmt::format(
      "cache is scarce beside the weights: {} replicas with tp {} would hold {} sequences at once instead of "
      "{} (mesh.tp_size={})",
      wider.replicas, doubled.tp, wider.concurrency, plan.concurrency, doubled.tp);
}

std::optional<std::string> reserved_in_vain(const Doubted& doubted) {
  const job::ServingKeys& keys = doubted.question.keys;
  if (keys.kv_policy != job::KvPolicy::reserve) return std::nullopt;
  return fmt::format(
      "plan.kv_policy reserve holds room for {} tokens a sequence whatever it uses; paged holds blocks of {} "
      "as it grows",
      context_of(doubted.question), keys.kv_block);
}

std::optional<std::string> longer_than_mean(const Doubted& doubted) {
  const std::int64_t context = context_of(doubted.question);
  const std::int64_t mean = mean_context_of(doubted.question);
  if (mean == context) return std::nullopt;
  return fmt::format(
      "counted for {} tokens a sequence on average: when more of them grow towards {} at once, some must "
      "wait "
      "or be computed again",
      mean, context);
}

std::optional<std::string> left_out_layers(const Doubted& doubted) {
  const std::int64_t layers = doubted.question.model.mtp_layers;
  if (layers == 0) return std::nullopt;
  return fmt::format("{} multi-token prediction layer{} left out: they are needed for speculation only",
                     layers, layers == 1 ? " is" : "s are");
}

struct Check {
  const char* name;
  std::optional<std::string> (*text)(const Doubted&);  ///< nothing when there is no doubt
};

constexpr Check checks[] = {
    {"estimated model", estimated},    {"tp across domains", tp_between_nodes},
    {"copied cache", copied_cache},    {"idle devices", idle_devices},
    {"scarce cache", scarce_cache},    {"reserved cache", reserved_in_vain},
    {"mean length", longer_than_mean}, {"mtp layers", left_out_layers},
};

}  // namespace

std::vector<std::string> serving_reasons(const ServingQuestion& question, const ServingJudge& judge,
                                         const ServingPlan& plan, const ServingPlan* smaller) {
  return Reasons(question, judge, plan).run(smaller);
}

std::vector<Warning> serving_warnings(const ServingQuestion& question, const ServingPlan& plan) {
  std::vector<Warning> list;
  for (const Check& check : checks) {
    if (std::optional<std::string> text = check.text({question, plan})) {
      list.push_back({check.name, *std::move(text)});
    }
  }
  return list;
}

}  // namespace ndmesh::plan
