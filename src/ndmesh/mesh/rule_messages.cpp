#include "ndmesh/mesh/rule_messages.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <limits>

namespace ndmesh::mesh {
namespace {

/// "mesh.tp_size 2 x mesh.pp_size 3": the axes larger than 1.
std::string product_text(const MeshSizes& sizes) {
  std::vector<std::string> factors;
  for (const Axis axis : all_axes) {
    if (sizes.size(axis) > 1)
      factors.push_back(fmt::format("mesh.{}_size {}", name_of(axis), sizes.size(axis)));
  }
  return factors.empty() ? "1" : fmt::format("{}", fmt::join(factors, " x "));
}

/// "46 or 69": the multiples on both sides of `value`, the upper one only up to `most`.
std::string nearest_multiples(std::int64_t value, std::int64_t multiple,
                              std::int64_t most = std::numeric_limits<std::int64_t>::max()) {
  const std::int64_t lower = value / multiple * multiple;
  const std::int64_t upper = lower + multiple;
  if (lower == 0 && upper > most) return "none";
  if (lower == 0) return fmt::format("{}", upper);
  return upper > most ? fmt::format("{}", lower) : fmt::format("{} or {}", lower, upper);
}

std::string tp_fixes(const RuleInput& in) {
  const std::vector<std::int64_t> legal =
      legal_tp_sizes(in.heads, in.kv_heads > 0 ? in.kv_heads : in.heads, true);
  if (legal.empty()) return "no size is legal";
  const std::string text = fmt::format("legal are {}", fmt::join(legal, ", "));
  if (in.mesh.world() > max_world) return text;
  const std::vector<std::int64_t> largest_first(legal.rbegin(), legal.rend());
  for (const std::int64_t tp : largest_first) {
    const std::int64_t pp = in.mesh.pp * (in.mesh.tp / tp);
    if (in.mesh.tp % tp == 0 && pp <= in.layers) {
      return fmt::format("{}; on the same ranks mesh.tp_size {} with mesh.pp_size {}", text, tp, pp);
    }
  }
  return text;
}

std::string legal_ep_sizes(const RuleInput& in) {
  std::vector<std::int64_t> legal;
  for (std::int64_t ep = 1; ep <= in.experts; ++ep) {
    const bool fits =
        in.mesh.stage_ranks() % in.mesh.etp == 0 && in.mesh.stage_ranks() / in.mesh.etp % ep == 0;
    if (in.experts % ep == 0 && fits) legal.push_back(ep);
  }
  if (legal.empty()) return fmt::format("none is legal with mesh.etp_size {}", in.mesh.etp);
  return fmt::format("legal are {}", fmt::join(legal, ", "));
}

}  // namespace

std::int64_t local_kv_heads(const RuleInput& in) {
  return in.kv_heads > in.mesh.tp ? in.kv_heads / in.mesh.tp : 1;
}

std::string world_message(const RuleInput& in) {
  const std::int64_t product = in.mesh.world();
  std::vector<std::string> fixes;
  for (const Axis axis : all_axes) {
    const std::int64_t others = product / in.mesh.size(axis);
    if (*in.world % others == 0)
      fixes.push_back(fmt::format("mesh.{}_size {}", name_of(axis), *in.world / others));
  }
  std::string text =
      fmt::format("mesh: {} = {} ranks, but the run has {}", product_text(in.mesh), product, *in.world);
  if (!fixes.empty()) text += fmt::format("; any one of these fits: {}", fmt::join(fixes, ", "));
  if (in.mesh.ep > 1 && product * in.mesh.ep == *in.world) {
    text += fmt::format("; mesh.ep_size {} regroups ranks and is no factor of their number", in.mesh.ep);
  }
  return text;
}

std::string heads_message(const RuleInput& in) {
  return fmt::format("mesh.tp_size: {} does not divide the {} query heads (num_attention_heads); {}",
                     in.mesh.tp, in.heads, tp_fixes(in));
}

std::string kv_heads_message(const RuleInput& in) {
  return fmt::format(
      "mesh.tp_size: {} neither divides the {} KV heads (num_key_value_heads) nor is a multiple of them; {}",
      in.mesh.tp, in.kv_heads, tp_fixes(in));
}

std::string context_heads_message(const RuleInput& in) {
  const std::int64_t heads = in.heads / in.mesh.tp;
  return fmt::format("mesh.cp_size: {} cannot split the {} query and {} KV heads of a tp rank; legal are {}",
                     in.mesh.cp, heads, local_kv_heads(in),
                     fmt::join(legal_tp_sizes(heads, local_kv_heads(in), true), ", "));
}

std::string sequence_message(const RuleInput& in) {
  const std::int64_t multiple = sequence_multiple(in.mesh, in.context);
  std::vector<std::string> factors;
  if (in.mesh.tp > 1) factors.push_back(fmt::format("mesh.tp_size {}", in.mesh.tp));
  if (in.mesh.cp > 1) {
    const bool balanced = in.context == ContextSplit::sequence;
    factors.push_back(fmt::format("{}mesh.cp_size {}", balanced ? "2 x " : "", in.mesh.cp));
  }
  const std::int64_t most =
      in.max_positions > 0 ? in.max_positions : std::numeric_limits<std::int64_t>::max();
  return fmt::format("batch.seq_len: {} is not a multiple of {} ({}); nearest: {}", in.seq_len, multiple,
                     fmt::join(factors, " x "), nearest_multiples(in.seq_len, multiple, most));
}

std::string dense_message(const RuleInput& in) {
  return fmt::format(
      "mesh.ep_size {} and mesh.etp_size {}: the model is dense, it has no experts to place; both must be 1",
      in.mesh.ep, in.mesh.etp);
}

std::string experts_message(const RuleInput& in) {
  return fmt::format("mesh.ep_size: {} does not divide the {} experts; {}", in.mesh.ep, in.experts,
                     legal_ep_sizes(in));
}

std::string expert_ranks_message(const RuleInput& in) {
  return fmt::format(
      "mesh.ep_size {} x mesh.etp_size {} does not divide dp_replicate x dp_shard x cp x tp = {}, whose "
      "ranks it regroups; {}",
      in.mesh.ep, in.mesh.etp, in.mesh.stage_ranks(), legal_ep_sizes(in));
}

std::string batch_message(const RuleInput& in) {
  const std::int64_t unit = in.micro_batch * in.mesh.batch_ranks();
  return fmt::format(
      "batch.global: {} is not a multiple of {} = batch.micro {} x {} batch ranks (mesh.dp_replicate_size {} "
      "x "
      "mesh.dp_shard_size {}); nearest: {}",
      in.global_batch, unit, in.micro_batch, in.mesh.batch_ranks(), in.mesh.dp_replicate, in.mesh.dp_shard,
      nearest_multiples(in.global_batch, unit));
}

std::string stages_message(const RuleInput& in) {
  if (in.chunks == 1) {
    return fmt::format("mesh.pp_size: {} stages for {} layers (num_hidden_layers); allowed are 1 to {}",
                       in.mesh.pp, in.layers, in.layers);
  }
  return fmt::format(
      "mesh.pp_size: {} ranks with {} chunks each are {} stages for {} layers (num_hidden_layers); allowed "
      "are at most {} stages",
      in.mesh.pp, in.chunks, in.mesh.pp * in.chunks, in.layers, in.layers);
}

std::string interleaving_message(const RuleInput& in) {
  const std::int64_t asked = micro_batches(in).value();
  std::vector<std::int64_t> nearest;
  for (const std::int64_t direction : {-1, 1}) {
    std::int64_t count = asked + direction;
    while (count > 0 && !interleaves(count, in.mesh.pp, in.interleaving)) count += direction;
    if (count > 0) nearest.push_back(count * in.micro_batch * in.mesh.batch_ranks());
  }
  const bool classic = in.interleaving == Interleaving::classic;
  return fmt::format(
      "batch.global: {} makes {} micro-batches, which interleaved chunks cannot deal out: they need {}; "
      "nearest: {}",
      in.global_batch, asked,
      classic ? fmt::format("a multiple of mesh.pp_size {}", in.mesh.pp)
              : fmt::format("equal rounds of at least mesh.pp_size {}", in.mesh.pp),
      fmt::join(nearest, " or "));
}

std::string runtime_message(const RuleInput& in, Axis axis, std::string_view what) {
  return fmt::format("mesh.{}_size: {}, but {} {}", name_of(axis), in.mesh.size(axis), in.runtime.name, what);
}

std::string expert_runtime_message(const RuleInput& in) {
  if (!in.runtime.has_experts) {
    return fmt::format("mesh.ep_size {} and mesh.etp_size {}: {} has no expert parallelism; both must be 1",
                       in.mesh.ep, in.mesh.etp, in.runtime.name);
  }
  return fmt::format("mesh.etp_size: {}, but {} cuts an expert over 1 rank or over all {} of mesh.tp_size",
                     in.mesh.etp, in.runtime.name, in.mesh.tp);
}

std::string equal_parts_message(const RuleInput& in) {
  std::vector<std::string> uneven;
  const auto add = [&](std::string_view what, std::int64_t width) {
    if (width % in.mesh.tp != 0) uneven.push_back(fmt::format("{} {}", what, width));
  };
  add("hidden_size", in.hidden);
  add("intermediate_size", in.ffn);
  if (!in.runtime.pads_vocabulary) add("vocab_size", in.vocab);
  return fmt::format("mesh.tp_size: {} does not divide {}, which {} cuts into equal parts only", in.mesh.tp,
                     fmt::join(uneven, " and "), in.runtime.name);
}

std::string equal_stages_message(const RuleInput& in) {
  const std::int64_t stages = in.mesh.pp * in.chunks;
  std::vector<std::int64_t> legal;
  for (std::int64_t pp = 1; pp * in.chunks <= in.layers; ++pp) {
    if (in.layers % (pp * in.chunks) == 0) legal.push_back(pp);
  }
  return fmt::format(
      "mesh.pp_size: {} layers (num_hidden_layers) are no multiple of {} = mesh.pp_size {} x pipeline.chunks "
      "{}, "
      "as {} needs; legal are {}",
      in.layers, stages, in.mesh.pp, in.chunks, in.runtime.name,
      legal.empty() ? "none" : fmt::format("{}", fmt::join(legal, ", ")));
}

std::string zero_message(const RuleInput& in) {
  const RuntimeLimits& runtime = in.runtime;
  if (*in.zero > runtime.most_zero) {
    return fmt::format("shard.zero: {}, but {} has at most {}", *in.zero, runtime.name, runtime.most_zero);
  }
  if (in.mesh.pp > 1 && *in.zero > runtime.most_zero_staged) {
    return fmt::format("shard.zero: {} with mesh.pp_size {}, but with pipeline stages {} has at most {}",
                       *in.zero, in.mesh.pp, runtime.name, runtime.most_zero_staged);
  }
  return fmt::format(
      "shard.zero: {} with mesh.ep_size {} and mesh.tp_size {}, but with both {} has at most {}", *in.zero,
      in.mesh.ep, in.mesh.tp, runtime.name, runtime.most_zero_experts);
}

}  // namespace ndmesh::mesh
