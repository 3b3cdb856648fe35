#include "ndmesh/job/field_kinds.h"
#include "ndmesh/job/field_lists.h"
#include "ndmesh/job/names.h"

namespace ndmesh::job {
namespace {

constexpr IntegerRange tokens_or_all = {0, 1 << 30};
constexpr IntegerRange count_or_all = {0, 1 << 30};

/// The place of a key of plan.task serve. Works on Job and const Job.
template <typename Value>
auto serving(Value ServingKeys::*key) {
  return [key](auto& job) -> auto& {
    return job.plan.serving.*key;
  };
}

std::vector<Field> wishes() {
  return {
      integer("plan.context", tokens_or_all,
              "serve: tokens of the longest sequence, prompt and answer; 0: the model's positions",
              serving(&ServingKeys::context)),
      integer("plan.mean_context", tokens_or_all,
              "serve: tokens that a sequence holds on average, for paged caches; 0: as plan.context",
              serving(&ServingKeys::mean_context)),
      integer("plan.concurrency", count_or_all,
              "serve: sequences at once that the cluster must hold; 0: as many as fit",
              serving(&ServingKeys::concurrency)),
  };
}

std::vector<Field> formats() {
  return {
      choice<WeightFormat>(
          "plan.weights",
          choices_of({WeightFormat::bfloat16, WeightFormat::fp8, WeightFormat::int8, WeightFormat::int4}),
          "serve: how the matrices of the layers are stored; tables, norms and router stay "
          "bfloat16",
          serving(&ServingKeys::weights)),
      choice<KvFormat>("plan.kv_dtype",
                       choices_of({KvFormat::float32, KvFormat::bfloat16, KvFormat::fp8, KvFormat::int8}),
                       "serve: how keys and values are stored", serving(&ServingKeys::kv_dtype)),
  };
}

std::vector<Field> cache() {
  return {
      choice<KvPolicy>(
          "plan.kv_policy", choices_of({KvPolicy::reserve, KvPolicy::paged, KvPolicy::prefix}),
          "serve: reserve gives each sequence room for plan.context; paged gives blocks as it grows; "
          "prefix also holds a shared beginning once",
          serving(&ServingKeys::kv_policy)),
      integer("plan.kv_block", {1, 1 << 20}, "serve: tokens of one block of the cache",
              serving(&ServingKeys::kv_block)),
      number("plan.prefix_share", {0, 1},
             "serve: share of a sequence's mean length that all have in common, for plan.kv_policy prefix",
             serving(&ServingKeys::prefix_share)),
      integer("plan.prefill_chunk", {1, 1 << 24},
              "serve: tokens of one forward at most; what activations are counted for",
              serving(&ServingKeys::prefill_chunk)),
  };
}

}  // namespace

std::vector<Field> serving_fields() {
  std::vector<Field> list = wishes();
  for (std::vector<Field> more : {formats(), cache()}) {
    std::move(more.begin(), more.end(), std::back_inserter(list));
  }
  return list;
}

}  // namespace ndmesh::job
