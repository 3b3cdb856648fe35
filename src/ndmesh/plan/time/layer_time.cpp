#include "ndmesh/plan/time/layer_time.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ndmesh/plan/integers.h"

namespace ndmesh::plan {
namespace {

/// Backward of an elementwise op reads one tensor more than forward.
constexpr double elementwise_backward = 1.5;
/// Softmax op by op, beside the fused kernel: casts, scale and mask; and its passes over the scores.
constexpr double eager_softmax_kernels = 5;
constexpr double eager_softmax_passes = 2.5;
/// Launches before the first long kernel of a pass.
constexpr double first_launches = 10;
/// Moving tokens to their experts reads and writes scattered rows.
constexpr double scattered = 2;

}  // namespace

double Pass::waiting() const {
  return std::accumulate(waits.begin(), waits.end(), 0.0);
}

Pass& Pass::operator+=(const Pass& other) {
  compute += other.compute;
  for (std::size_t i = 0; i < wait_count; ++i) {
    waits[i] += other.waits[i];
  }
  return *this;
}

Pass& Pass::operator-=(const Pass& other) {
  compute -= other.compute;
  for (std::size_t i = 0; i < wait_count; ++i) {
    waits[i] -= other.waits[i];
  }
  return *this;
}

Pass& Pass::operator*=(double factor) {
  compute *= factor;
  for (double& seconds : waits) {
    seconds *= factor;
  }
  return *this;
}

Pass Work::whole() const {
  Pass sum = forward;
  sum += input_grad;
  sum += weight_grad;
  return sum;
}

Work& Work::operator+=(const Work& other) {
  forward += other.forward;
  input_grad += other.input_grad;
  weight_grad += other.weight_grad;
  dense += other.dense;
  expert += other.expert;
  layers += other.layers;
  return *this;
}

Work& Work::operator-=(const Work& other) {
  forward -= other.forward;
  input_grad -= other.input_grad;
  weight_grad -= other.weight_grad;
  dense -= other.dense;
  expert -= other.expert;
  layers -= other.layers;
  return *this;
}

struct LayerClock::Tally {
  Work work;
  double forward_kernels = 0;
  double input_kernels = 0;
  double weight_kernels = 0;
  double forward_host = 0;  // seconds of the host beside launches
  double input_host = 0;
  Pass selective;  // forward again under selective recompute
  double selective_kernels = 0;
  double last_weight_seconds = 0;  // of the last linear layer: what its input's reduction can hide under

  /// Compute is not shorter than the host needs to launch its kernels. Then collectives add to it: they start
  /// when the last of their ranks has launched them.
  static void at_least(Pass& pass, double host) { pass.compute = std::max(pass.compute, host); }

  Work finish(const LayerKind& kind, double host_seconds, const TimeProfile& profile = {}) {
    if (profile.starts_idle) {
      work.forward.compute += first_launches * host_seconds;
      work.input_grad.compute += first_launches * host_seconds;
    }
    at_least(work.forward, forward_kernels * host_seconds + forward_host);
    if (kind.recomputed) {
      work.input_grad += work.forward;
      input_kernels += forward_kernels;
      input_host += forward_host;
    } else if (kind.selective) {
      work.input_grad += selective;
      input_kernels += selective_kernels;
    }
    at_least(work.input_grad, input_kernels * host_seconds + input_host);
    at_least(work.weight_grad, weight_kernels * host_seconds);
    return work;
  }
};

LayerClock::LayerClock(const Problem& problem, const Rates& rates, const Collectives& collectives,
                       const Division& division)
    : model_(problem.model),
      problem_(problem),
      profile_(problem.profile.time),
      rates_(rates),
      collectives_(collectives),
      division_(division) {}

void LayerClock::linear(Tally& tally, const Product& product) const {
  const auto [m, n, k, batch] = product;
  const double flops = rates_.product_flops;
  const double forward =
      product_seconds(rates_, product, flops) + cast_seconds(rates_, (m * k + k * n) * batch);
  const double accumulated = (profile_.gradient_accumulation_fused ? 8 : 16) * n * k * batch;
  const double weight =
      product_seconds(rates_, {n, k, m, batch}, flops, accumulated) * rates_.weight_gradient_slowdown;
  tally.work.forward.compute += forward;
  tally.work.input_grad.compute +=
      product_seconds(rates_, {m, k, n, batch}, flops) + cast_seconds(rates_, m * n * batch);
  tally.work.weight_grad.compute += weight;
  tally.work.dense += n * k * batch;
  tally.last_weight_seconds = weight;
  tally.forward_kernels += 1;
  tally.input_kernels += 1;
  tally.weight_kernels += profile_.gradient_accumulation_fused ? 1 : 2;
  tally.selective.compute += profile_.selective.products * forward;
  tally.selective_kernels += profile_.selective.products;
}

void LayerClock::elementwise(Tally& tally, double bytes) const {
  const double forward = move_seconds(rates_, bytes * profile_.elementwise_passes);
  tally.work.forward.compute += forward;
  tally.work.input_grad.compute +=
      move_seconds(rates_, elementwise_backward * bytes * profile_.elementwise_passes);
  tally.forward_kernels += profile_.elementwise_passes;
  tally.input_kernels += profile_.elementwise_passes;
  if (profile_.selective.elementwise) {
    tally.selective.compute += forward;
    tally.selective_kernels += profile_.elementwise_passes;
  }
}

/// Before a linear layer that tp cuts by columns: sequence parallelism gathers its input; backward reduces
/// the input's gradient, and gathers the input again for the weight gradient under the product of the input's
/// gradient.
void LayerClock::enter_columns(Tally& tally) const {
  if (division_.tp <= 1) {
    return;
  }
  const double bytes = division_.tokens * real(model_.hidden) * rates_.element_bytes;
  const double hidden =
      profile_.overlap_tensor_backward || profile_.overlap_tensor ? tally.last_weight_seconds : 0;
  if (division_.sequence_parallel) {
    const double gather = collectives_.all_gather(division_.tp_group, bytes);
    const double cut = profile_.overlap_tensor ? gather / division_.tp : gather;
    const double reduce = collectives_.reduce_scatter(division_.tp_group, bytes);
    tally.work.forward.wait(Wait::tp_all_gather) += cut;
    tally.work.input_grad.wait(Wait::tp_reduce_scatter) += std::max(0.0, reduce - hidden);
    tally.work.weight_grad.compute += rates_.overlap_slowdown * std::min(reduce, hidden);
  } else {
    const double reduce = collectives_.all_reduce(division_.tp_group, bytes);
    tally.work.input_grad.wait(Wait::tp_all_reduce) += std::max(0.0, reduce - hidden);
    tally.work.weight_grad.compute += rates_.overlap_slowdown * std::min(reduce, hidden);
  }
  tally.forward_kernels += 1;
  tally.input_kernels += 1;
}

/// Behind a linear layer that tp cuts by rows: the output is summed; sequence parallelism gathers its
/// gradient.
void LayerClock::leave_rows(Tally& tally) const {
  if (division_.tp <= 1) {
    return;
  }
  const double bytes = division_.tokens * real(model_.hidden) * rates_.element_bytes;
  const double share = profile_.overlap_tensor ? 1 / division_.tp : 1;
  if (division_.sequence_parallel) {
    const double seconds = share * collectives_.reduce_scatter(division_.tp_group, bytes);
    tally.work.forward.wait(Wait::tp_reduce_scatter) += seconds;
    tally.work.input_grad.wait(Wait::tp_all_gather) += seconds;
    tally.input_kernels += 1;
  } else {
    tally.work.forward.wait(Wait::tp_all_reduce) +=
        share * collectives_.all_reduce(division_.tp_group, bytes);
  }
  tally.forward_kernels += 1;
}

double LayerClock::context_length(bool windowed) const {
  const double sequence = real(problem_.seq_len);
  const double window =
      windowed ? std::min(sequence, real(model_.sliding_window.value_or(problem_.seq_len))) : sequence;
  return window - window * window / (2 * sequence);  // mean over a causal mask
}

/// Ranks of cp hold parts of the sequence: how the keys and values of the others come, and what of it shows.
void LayerClock::context_waits(Tally& tally, double forward_seconds, double backward_seconds) const {
  if (division_.cp <= 1) {
    return;
  }
  const double tokens = division_.tokens;
  const double tp = division_.tp;
  const double element = rates_.element_bytes;
  const double kv_bytes = tokens * real(model_.kv_elements_per_token()) / tp * element;
  double& forward = tally.work.forward.wait(Wait::cp);
  double& backward = tally.work.input_grad.wait(Wait::cp);
  const double steps = division_.cp - 1;
  switch (problem_.context) {
    case job::ContextKind::ring: {
      const double send = collectives_.send(division_.cp_group, kv_bytes);
      forward += steps * std::max(0.0, send - forward_seconds / division_.cp);
      const double both = collectives_.send(division_.cp_group, 2 * kv_bytes);
      backward += steps * std::max(0.0, both - backward_seconds / division_.cp);
      const double merged = tokens * real(model_.value_width()) / tp * 12;  // partial results in float32
      tally.work.forward.compute += steps * move_seconds(rates_, merged);
      tally.work.input_grad.compute += steps * move_seconds(rates_, merged);
      tally.forward_kernels += 3 * steps;
      tally.input_kernels += 3 * steps;
      return;
    }
    case job::ContextKind::allgather:
      forward += collectives_.all_gather(division_.cp_group, kv_bytes * division_.cp);
      backward += 2 * collectives_.all_gather(division_.cp_group, kv_bytes * division_.cp);
      return;
    case job::ContextKind::alltoall:
    case job::ContextKind::hierarchical: {
      const double others = tokens * real(model_.query_width() + model_.value_width()) / tp * element;
      const double seconds = collectives_.all_to_all(division_.cp_group, kv_bytes + others);
      forward += seconds;
      backward += seconds;
      return;
    }
  }
}

void LayerClock::attention_core(Tally& tally, bool windowed) const {
  const double heads = real(model_.heads) / division_.tp;
  const AttentionShape shape{.tokens = division_.tokens,
                             .heads = heads,
                             .context = context_length(windowed),
                             .query_dim = real(model_.query_width()) / real(model_.heads),
                             .value_dim = real(model_.value_width()) / real(model_.heads),
                             .passes = problem_.context == job::ContextKind::ring ? division_.cp : 1};
  double forward = 0;
  double backward = 0;
  if (profile_.attention == AttentionKernel::unfused) {
    const ScoreShape scores{.attention = shape, .sequence = real(problem_.seq_len)};
    const double product = score_products_seconds(rates_, scores);
    const bool fused =
        std::fmod(heads * division_.tokens / real(problem_.seq_len), real(profile_.softmax_heads)) == 0;
    const double passes = fused ? profile_.score_passes : eager_softmax_passes;
    const double moved = move_seconds(rates_, rates_.score_bytes * passes * scores.count());
    if (!fused) {
      tally.forward_kernels += eager_softmax_kernels;
      tally.input_kernels += eager_softmax_kernels;
      tally.selective_kernels += eager_softmax_kernels;
    }
    forward = product + moved;
    backward = 2 * product + elementwise_backward * moved;
    tally.forward_kernels += 5;
    tally.input_kernels += 8;
    tally.selective_kernels += 5;
  } else {
    forward = flash_forward_seconds(rates_, shape);
    backward = flash_backward_seconds(rates_, shape);
    tally.forward_kernels += 1;
    tally.input_kernels += 3;
    tally.selective_kernels += 1;
  }
  tally.work.forward.compute += forward;
  tally.work.input_grad.compute += backward;
  if (profile_.selective.attention) {
    tally.selective.compute += forward;
  }
  context_waits(tally, forward, backward);
}

/// Query, key and value from hidden, and attention's output back to it.
void LayerClock::projections(Tally& tally) const {
  const double tokens = division_.tokens;
  const double tp = division_.tp;
  const double hidden = real(model_.hidden);
  if (model_.latent) {
    const model::LatentAttention& latent = *model_.latent;
    const double local = region_tokens();
    const double queries = real(model_.query_width()) / tp;
    const double latent_out = real(latent.kv_rank + latent.rope_dim);
    const double keys = real(model_.heads * (latent.nope_dim + latent.value_dim)) / tp;
    linear(tally, {local, latent_out, hidden});
    linear(tally, {tokens, keys, real(latent.kv_rank)});
    if (latent.query_rank > 0) {
      linear(tally, {local, real(latent.query_rank), hidden});
      linear(tally, {tokens, queries, real(latent.query_rank)});
    } else {
      linear(tally, {tokens, queries, hidden});
    }
    elementwise(tally, 4 * local * real(latent.query_rank + latent.kv_rank) * rates_.element_bytes);
    elementwise(tally, 4 * tokens * (queries + keys) * rates_.element_bytes);
    return;
  }
  const double queries = real(model_.query_width()) / tp;
  const double keys = std::max(real(model_.kv_heads) / tp, 1.0) * real(model_.head_dim);
  linear(tally, {tokens, queries + 2 * keys, hidden});
  if (model_.qk_norm) {
    elementwise(tally, 2 * tokens * (queries + keys) * rates_.element_bytes);
  }
  if (!model_.learned_positions) {
    elementwise(tally, 2 * tokens * (queries + keys) * rates_.element_bytes);
  }
}

void LayerClock::attention(Tally& tally, bool windowed) const {
  const double hidden = real(model_.hidden);
  const double region = region_tokens() * hidden * rates_.element_bytes;
  elementwise(tally, 2 * region);  // norm
  projections(tally);
  enter_columns(tally);
  attention_core(tally, windowed);
  linear(tally, {division_.tokens, hidden, real(model_.value_width()) / division_.tp});
  leave_rows(tally);
  elementwise(tally, (model_.post_norms ? 5 : 3) * region);  // residual
}

void LayerClock::feed_forward(Tally& tally, double ffn) const {
  const double hidden = real(model_.hidden);
  const double wide = ffn / division_.tp;
  const double ways = model_.gated ? 2 : 1;
  linear(tally, {division_.tokens, ways * wide, hidden});
  enter_columns(tally);
  elementwise(tally, (ways + 1) * division_.tokens * wide * rates_.element_bytes);
  linear(tally, {division_.tokens, hidden, wide});
  leave_rows(tally);
}

/// Router, tokens to their experts and back, grouped products of the experts of one rank.
void LayerClock::experts(Tally& tally) const {
  const model::Experts& experts = *model_.experts;
  const double hidden = real(model_.hidden);
  const double tokens = division_.tokens / division_.tp;
  const double skew = profile_.balanced_experts ? 1 : problem_.expert_skew;
  const double copies = real(experts.per_token);
  const double routed = tokens * copies;
  const double bytes = routed * hidden * rates_.element_bytes;
  linear(tally, {tokens, real(experts.count), hidden});
  elementwise(tally, 6 * scattered * bytes * division_.etp);
  const double before = tally.work.dense;
  const double local = std::max(1.0, real(experts.count) / division_.ep);
  const double rows = routed * division_.etp * skew / local;
  const double wide = real(experts.ffn) / division_.etp;
  const double ways = model_.gated ? 2 : 1;
  linear(tally, {rows, ways * wide, hidden, local});
  elementwise(tally, (ways + 1) * rows * local * wide * rates_.element_bytes);
  linear(tally, {rows, hidden, wide, local});
  tally.work.expert += tally.work.dense - before;
  tally.work.dense = before;
  double exchange =
      2 * skew * collectives_.dispatch(division_.ep_group, bytes / copies, copies, profile_.dispatch_once);
  exchange += collectives_.all_gather(division_.etp_group, bytes * division_.etp) +
              collectives_.reduce_scatter(division_.etp_group, bytes * division_.etp);
  const double hidden_share = profile_.overlap_experts ? 1 : 0;
  const double forward = std::max(0.0, exchange - hidden_share * tally.work.forward.compute);
  const double backward = std::max(0.0, exchange - hidden_share * tally.work.input_grad.compute);
  tally.work.forward.wait(Wait::ep) += forward;
  tally.work.input_grad.wait(Wait::ep) += backward;
  tally.work.forward.compute += rates_.overlap_slowdown * (exchange - forward);
  tally.work.input_grad.compute += rates_.overlap_slowdown * (exchange - backward);
  tally.forward_host += rates_.expert_host_seconds;
  tally.input_host += rates_.expert_host_seconds;
}

Work LayerClock::layer(const LayerKind& kind) const {
  Tally tally;
  tally.work.layers = 1;
  attention(tally, kind.windowed);
  const double region = region_tokens() * real(model_.hidden) * rates_.element_bytes;
  elementwise(tally, 2 * region);  // norm
  if (kind.moe) {
    if (model_.experts->shared_ffn > 0) {
      feed_forward(tally, real(model_.experts->shared_ffn));
    }
    experts(tally);
  } else {
    feed_forward(tally, real(model_.ffn));
  }
  elementwise(tally, (model_.post_norms ? 5 : 3) * region);  // residual
  Work work = tally.finish(kind, rates_.host_seconds, profile_);
  cross_to_host(work, kind);
  return work;
}

/// Runtimes that move activations copy each where it is kept and where it is read, on the stream that computes:
/// nothing hides it. A forward that runs again keeps on the device what its backward reads next.
void LayerClock::cross_to_host(Work& work, const LayerKind& kind) const {
  const OffloadedBytes& offloaded = division_.offloaded;
  const double bytes = kind.recomputed ? offloaded.recomputed : kind.moe ? offloaded.moe : offloaded.dense;
  if (bytes > 0) {
    work.forward.wait(Wait::offload) += bytes / rates_.host_bandwidth;
    work.input_grad.wait(Wait::reload) += bytes / rates_.host_bandwidth;
  }
}

Work LayerClock::embedding() const {
  Tally tally;
  const double bytes = region_tokens() * real(model_.hidden) * rates_.element_bytes;
  elementwise(tally, 2 * bytes);
  leave_rows(tally);
  tally.work.dense = local_vocab() * real(model_.hidden);
  return tally.finish({}, rates_.host_seconds);
}

/// Rows of the vocabulary on one tp rank, padding included.
double LayerClock::local_vocab() const {
  if (division_.tp <= 1 && !profile_.pads_uncut_vocabulary) {
    return real(model_.vocab);
  }
  const double multiple = real(profile_.vocabulary_multiple) * division_.tp;
  return std::ceil(real(model_.vocab) / multiple) * multiple / division_.tp;
}

void LayerClock::head_products(Tally& tally) const {
  const double vocab = local_vocab();
  linear(tally, {division_.tokens, vocab, real(model_.hidden)});
  enter_columns(tally);
  const double loss = move_seconds(rates_, division_.tokens * vocab * profile_.loss_bytes / 2);
  tally.work.forward.compute += loss;
  tally.work.input_grad.compute += loss;
}

Work LayerClock::head() const {
  Tally tally;
  elementwise(tally, 2 * region_tokens() * real(model_.hidden) * rates_.element_bytes);
  head_products(tally);
  return tally.finish({}, rates_.host_seconds);
}

Work LayerClock::prediction() const {
  Tally tally;
  const double hidden = real(model_.hidden);
  linear(tally, {region_tokens(), hidden, 2 * hidden});
  head_products(tally);
  Work work = tally.finish({}, rates_.host_seconds);
  work.dense -= local_vocab() * hidden;  // the head's table is shared
  return work;
}

}  // namespace ndmesh::plan
