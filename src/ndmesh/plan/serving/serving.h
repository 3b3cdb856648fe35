#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ndmesh/base/memory_category.h"
#include "ndmesh/cluster/cluster.h"
#include "ndmesh/job/job.h"
#include "ndmesh/job/serving_keys.h"
#include "ndmesh/mesh/mesh.h"
#include "ndmesh/model/model_spec.h"
#include "ndmesh/plan/serving/serving_cache.h"
#include "ndmesh/plan/warning.h"

namespace ndmesh::plan {

/// Serving, by memory: what a rank holds, how many sequences fit, and whether replicas or shards. A replica
/// is one copy of the model on tp x pp ranks, times the ranks that attend to sequences of their own but share
/// the experts (`attention_ranks`, more than 1 only for MoE). On the mesh those and the replicas together are
/// dp_replicate. Times of serving are not predicted yet.

/// Sizes that a request holds fixed; what is left out is searched.
struct HeldServing {
  std::optional<std::int64_t> tp = {};
  std::optional<std::int64_t> pp = {};
  std::optional<std::int64_t> ep = {};
  std::optional<std::int64_t> etp = {};
  std::optional<std::int64_t> dp_replicate = {};  ///< replicas, times the attention ranks of one
};

/// Everything about a serving plan that is not searched. A plain value.
struct ServingQuestion {
  model::ModelSpec model;
  cluster::Cluster cluster;
  job::ServingKeys keys;
  double headroom = 0.05;  ///< share of usable memory left free
  HeldServing held = {};
};

/// From a job with plan.task serve: its keys of `plan`, and the mesh sizes that it gives. RequestError for
/// sizes that serving has no use for (cp, dp_shard).
ServingQuestion serving_question(const job::Job& job, const model::ModelSpec& model,
                                 const cluster::Cluster& cluster);

/// One replica's shape.
struct Replica {
  std::int64_t tp = 1;
  std::int64_t pp = 1;
  std::int64_t attention_ranks = 1;
  std::int64_t ep = 1;
  std::int64_t etp = 1;

  std::int64_t ranks() const { return tp * pp * attention_ranks; }
  /// Of so many of these.
  mesh::MeshSizes mesh(std::int64_t replicas = 1) const;
  bool operator==(const Replica&) const = default;
};

/// What a rank of one pipeline stage holds, the fullest of its stage.
struct ServingBudget {
  std::int64_t stage = 0;
  std::int64_t rank = 0;                 ///< of the first replica
  MemoryBytes bytes;                     ///< all but logits and kv_cache; headroom counted
  std::int64_t outside = 0;              ///< of `bytes`: device context and communicators, in no tensor
  std::int64_t logits_per_sequence = 0;  ///< bytes
  CacheShape cache;
  std::int64_t room = 0;  ///< usable memory less `bytes`: for cache and logits; negative when it lacks
};

/// Budgets of one replica, by stage. `replica` is legal for the model.
std::vector<ServingBudget> serving_budgets(const ServingQuestion& question, const Replica& replica);

/// Bytes of keys and values that one token leaves in the caches of all layers, windows left aside, each head
/// counted once: what a replica holds for it where tp does not exceed the KV heads.
std::int64_t kv_bytes_per_token(const model::ModelSpec& model, job::KvFormat format);

/// One way to serve, judged.
struct ServingPlan {
  Replica replica;
  std::int64_t replicas = 0;
  ServingBudget worst;  ///< of the stage that limits
  /// Of that rank with cache and logits for the sequences that fit; or for what is wanted, when that does not.
  MemoryBytes memory;
  bool fits = false;             ///< a sequence of plan.context does, and plan.concurrency over all replicas
  std::int64_t concurrency = 0;  ///< sequences of plan.mean_context at once, over all replicas
  std::int64_t max_context = 0;  ///< longest sequence, tokens: whole blocks, within the model's positions
  std::vector<std::string> levels;   ///< by mesh::Axis: the level of the network; empty for size 1
  std::vector<std::string> reasons;  ///< one for each used axis, in numbers

  mesh::MeshSizes mesh() const { return replica.mesh(replicas); }
};

/// A change to the question with which it fits, judged.
struct ServingFix {
  std::string change;  ///< in the key names of a job: "plan.weights=fp8"
  ServingPlan plan;
  std::int64_t devices = 0;  ///< of the cluster that the change asks for
};

struct ServingAnswer {
  std::int64_t legal = 0;   ///< replicas that broke no rule
  std::int64_t judged = 0;  ///< all
  double seconds = 0;
  std::int64_t kv_bytes_per_token = 0;
  std::vector<ServingPlan> plans;  ///< best first; those that do not fit after, by least excess
  std::vector<Warning> warnings;   ///< about the first plan
  std::vector<ServingFix> fixes;   ///< when none fits
};

/// Ranks axes from the fastest: a pipeline of one replica sits on neighbours, replicas come last.
inline constexpr mesh::AxisOrder serving_order = {mesh::Axis::tp, mesh::Axis::cp, mesh::Axis::dp_shard,
                                                  mesh::Axis::pp, mesh::Axis::dp_replicate};

/// Every legal replica on the cluster, ranked: most replicas; tp within one domain of fast links; most
/// sequences at once, where each stage of a pipeline must bring a quarter more, since it makes every token
/// later; fewest stages; fewest ep. At most `top` plans are kept. RequestError with every broken rule.
ServingAnswer answer_serving(const ServingQuestion& question, std::int64_t top);

/// plan.context and plan.mean_context as they hold: zeros resolved from the model.
std::int64_t context_of(const ServingQuestion& question);
std::int64_t mean_context_of(const ServingQuestion& question);

}  // namespace ndmesh::plan
