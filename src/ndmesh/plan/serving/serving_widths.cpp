#include "ndmesh/plan/serving/serving_widths.h"

#include <algorithm>

#include "ndmesh/plan/integers.h"

namespace ndmesh::plan {
namespace {

constexpr std::int64_t activation_bytes = 2;  // bfloat16

struct KvStorage {
  std::int64_t element;  ///< bytes
  std::int64_t scales;   ///< bytes for each head's key or value of a token
};

KvStorage storage(job::KvFormat format) {
  switch (format) {
    case job::KvFormat::float32:
      return {4, 0};
    case job::KvFormat::bfloat16:
      return {2, 0};
    case job::KvFormat::fp8:
      return {1, 0};
    case job::KvFormat::int8:
      break;
  }
  return {1, 4};
}

/// Elements a token: queries, keys, values and the output of attention, and latents where there are.
std::int64_t attention_width(const model::ModelSpec& model, std::int64_t tp) {
  const std::int64_t outer = ceil_div(model.query_width(), tp) + ceil_div(model.value_width(), tp);
  if (!model.latent) {
    return outer + 2 * std::max<std::int64_t>(1, ceil_div(model.kv_heads, tp)) * model.head_dim;
  }
  const std::int64_t latents = model.latent->query_rank + model.latent->kv_rank + model.latent->rope_dim;
  return outer + latents + outer;  // keys are as wide as queries, values as outputs
}

std::int64_t feed_forward_width(const model::ModelSpec& model, std::int64_t ffn, std::int64_t ranks) {
  return (model.gated ? 3 : 2) * ceil_div(ffn, ranks);
}

/// Elements of routed experts: a token is copied to each of its experts on the rank and comes back.
std::int64_t expert_elements(const model::ModelSpec& model, const Replica& replica, std::int64_t tokens) {
  const std::int64_t met =
      capped_product(capped_product(tokens, replica.attention_ranks), model.experts->per_token);
  return capped_product(ceil_div(met, replica.ep),
                        2 * model.hidden + feed_forward_width(model, model.experts->ffn, replica.etp));
}

}  // namespace

std::int64_t kv_bytes_of_layer(const model::ModelSpec& model, job::KvFormat format, std::int64_t tp) {
  const auto [element, scales] = storage(format);
  if (model.latent) {
    return model.kv_elements_per_token() * element + scales;
  }
  const std::int64_t heads = std::max<std::int64_t>(1, model.kv_heads / tp);
  return 2 * heads * (model.head_dim * element + scales);
}

std::int64_t kv_bytes_per_token(const model::ModelSpec& model, job::KvFormat format) {
  return capped_product(model.layers, kv_bytes_of_layer(model, format, 1));
}

std::int64_t prefill_bytes(const model::ModelSpec& model, bool moe, const Replica& replica,
                           std::int64_t tokens) {
  const std::int64_t attention = capped_product(tokens, attention_width(model, replica.tp));
  const std::int64_t dense_ffn = moe ? model.experts->shared_ffn : model.ffn;
  const std::int64_t dense = capped_product(tokens, feed_forward_width(model, dense_ffn, replica.tp));
  const std::int64_t experts = moe ? expert_elements(model, replica, tokens) : 0;
  const std::int64_t stream = capped_product(tokens, 3 * model.hidden);
  return capped_product(activation_bytes,
                        std::min(most_bytes, stream + std::max(attention, dense + experts)));
}

}  // namespace ndmesh::plan
