#include "ndmesh/mesh/rule_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <limits>

namespace ndmesh::mesh {
namespace {

std::int64_t batch_ranks(const RuleInput& in) {
  return in.mesh.dp_replicate * in.mesh.dp_shard;
}

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

// World

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

// Model and tensor parallelism

std::string tp_fixes(const RuleInput& in) {
  const std::vector<std::int64_t> legal =
      legal_tp_sizes(in.heads, in.kv_heads > 0 ? in.kv_heads : in.heads, true);
  if (legal.empty()) return "no size is legal";
  const std::string text = fmt::format("legal are {}", fmt::join(legal, ", "));
  if (in.mesh.world() > max_world) return text;
  for (auto tp = legal.rbegin(); tp != legal.rend(); ++tp) {
    const std::int64_t pp = in.mesh.pp * (in.mesh.tp / *tp);
    if (in.mesh.tp % *tp == 0 && pp <= in.layers) {
      return fmt::format("{}; on the same ranks mesh.tp_size {} with mesh.pp_size {}", text, *tp, pp);
    }
  }
  return text;
}

std::string heads_message(const RuleInput& in) {
  return fmt::format("mesh.tp_size: {} does not divide the {} query heads (num_attention_heads); {}",
                     in.mesh.tp, in.heads, tp_fixes(in));
}

bool kv_heads_hold(const RuleInput& in) {
  return in.kv_heads % in.mesh.tp == 0 || in.mesh.tp % in.kv_heads == 0;
}

std::string kv_heads_message(const RuleInput& in) {
  return fmt::format(
      "mesh.tp_size: {} neither divides the {} KV heads (num_key_value_heads) nor is a multiple of them; {}",
      in.mesh.tp, in.kv_heads, tp_fixes(in));
}

// Context parallelism

std::int64_t local_kv_heads(const RuleInput& in) {
  return in.kv_heads > in.mesh.tp ? in.kv_heads / in.mesh.tp : 1;
}

bool context_heads_apply(const RuleInput& in) {
  return in.context == ContextSplit::heads && in.mesh.cp > 1 && in.heads > 0 && in.kv_heads > 0 &&
         in.heads % in.mesh.tp == 0 && kv_heads_hold(in);
}

bool context_heads_hold(const RuleInput& in) {
  const std::int64_t kv_heads = local_kv_heads(in);
  return in.heads / in.mesh.tp % in.mesh.cp == 0 &&
         (kv_heads % in.mesh.cp == 0 || in.mesh.cp % kv_heads == 0);
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

// Experts

std::string dense_message(const RuleInput& in) {
  return fmt::format(
      "mesh.ep_size {} and mesh.etp_size {}: the model is dense, it has no experts to place; both must be 1",
      in.mesh.ep, in.mesh.etp);
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

std::string experts_message(const RuleInput& in) {
  return fmt::format("mesh.ep_size: {} does not divide the {} experts; {}", in.mesh.ep, in.experts,
                     legal_ep_sizes(in));
}

bool expert_ranks_hold(const RuleInput& in) {
  const std::int64_t ranks = in.mesh.stage_ranks();
  return ranks % in.mesh.ep == 0 && ranks / in.mesh.ep % in.mesh.etp == 0;
}

std::string expert_ranks_message(const RuleInput& in) {
  return fmt::format(
      "mesh.ep_size {} x mesh.etp_size {} does not divide dp_replicate x dp_shard x cp x tp = {}, whose "
      "ranks it regroups; {}",
      in.mesh.ep, in.mesh.etp, in.mesh.stage_ranks(), legal_ep_sizes(in));
}

// Batch and pipeline

std::string batch_message(const RuleInput& in) {
  const std::int64_t unit = in.micro_batch * batch_ranks(in);
  return fmt::format(
      "batch.global: {} is not a multiple of {} = batch.micro {} x {} batch ranks (mesh.dp_replicate_size {} "
      "x "
      "mesh.dp_shard_size {}); nearest: {}",
      in.global_batch, unit, in.micro_batch, batch_ranks(in), in.mesh.dp_replicate, in.mesh.dp_shard,
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
    if (count > 0) nearest.push_back(count * in.micro_batch * batch_ranks(in));
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

using In = const RuleInput&;

constexpr RuleEntry table[] = {
    {{"ranks", "the product of the sizes is at most 2147483647"},
     [](In) { return true; },
     [](In in) { return in.mesh.world() <= max_world; },
     [](In in) {
       return fmt::format("mesh: {} has more ranks than the {} that are allowed", in.mesh.name(), max_world);
     }},
    {{"world", "pp x dp_replicate x dp_shard x cp x tp is the number of ranks of the run"},
     [](In in) { return in.world.has_value() && in.mesh.world() <= max_world; },
     [](In in) { return in.mesh.world() == *in.world; },
     world_message},
    {{"head groups", "query heads are a multiple of the KV heads"},
     [](In in) { return in.heads > 0 && in.kv_heads > 0; },
     [](In in) { return in.heads % in.kv_heads == 0; },
     [](In in) {
       return fmt::format(
           "model: num_attention_heads {} is not a multiple of num_key_value_heads {}; no mesh can split it",
           in.heads, in.kv_heads);
     }},
    {{"query heads", "tp divides the query heads"},
     [](In in) { return in.heads > 0; },
     [](In in) { return in.heads % in.mesh.tp == 0; },
     heads_message},
    {{"KV heads", "tp divides the KV heads or is a multiple of them (neighbours then share a head)"},
     [](In in) { return in.kv_heads > 0; },
     kv_heads_hold,
     kv_heads_message},
    {{"feed-forward width", "every tp rank has a row of the feed-forward part; parts may be unequal"},
     [](In in) { return in.ffn > 0; },
     [](In in) { return in.mesh.tp <= in.ffn; },
     [](In in) {
       return fmt::format(
           "mesh.tp_size: {} ranks for a feed-forward width (intermediate_size) of {}; at most {}",
           in.mesh.tp, in.ffn, in.ffn);
     }},
    {{"context heads",
      "where cp splits heads, it divides the query heads of a tp rank, and divides the KV heads or is a "
      "multiple of them"},
     context_heads_apply,
     context_heads_hold,
     context_heads_message},
    {{"stages", "pp x chunks is at most the number of layers"},
     [](In in) { return in.layers > 0; },
     [](In in) { return in.mesh.pp <= in.layers / in.chunks; },
     stages_message},
    {{"dense model", "ep and etp are 1 for a model without experts"},
     [](In in) { return in.experts == 0; },
     [](In in) { return in.mesh.ep == 1 && in.mesh.etp == 1; },
     dense_message},
    {{"experts", "ep divides the experts"},
     [](In in) { return in.experts > 0; },
     [](In in) { return in.experts % in.mesh.ep == 0; },
     experts_message},
    {{"expert ranks", "ep x etp divides dp_replicate x dp_shard x cp x tp"},
     [](In in) { return in.experts > 0; },
     expert_ranks_hold,
     expert_ranks_message},
    {{"sequence", "batch.seq_len is a multiple of tp x 2 x cp (the 2 only with cp > 1)"},
     [](In in) { return in.seq_len > 0 && in.mesh.world() <= max_world; },
     [](In in) { return in.seq_len % sequence_multiple(in.mesh, in.context) == 0; },
     sequence_message},
    {{"positions", "batch.seq_len is at most what the model was made for"},
     [](In in) { return in.seq_len > 0 && in.max_positions > 0; },
     [](In in) { return in.seq_len <= in.max_positions; },
     [](In in) {
       return fmt::format(
           "batch.seq_len: {} is more than the {} positions of the model (max_position_embeddings)",
           in.seq_len, in.max_positions);
     }},
    {{"batch", "batch.global is a multiple of batch.micro x dp_replicate x dp_shard"},
     [](In in) { return in.global_batch > 0 && in.micro_batch > 0 && in.mesh.world() <= max_world; },
     [](In in) { return micro_batches(in).has_value(); },
     batch_message},
    {{"interleaving",
      "with several chunks a rank, micro-batches are a multiple of pp (classic) or of their rounds "
      "(flexible)"},
     [](In in) {
       return in.mesh.pp > 1 && in.chunks > 1 && in.mesh.world() <= max_world && micro_batches(in);
     },
     [](In in) { return interleaves(*micro_batches(in), in.mesh.pp, in.interleaving); },
     interleaving_message},
};

}  // namespace

std::span<const RuleEntry> rule_table() {
  return table;
}

}  // namespace ndmesh::mesh
