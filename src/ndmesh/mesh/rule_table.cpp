#include "ndmesh/mesh/rule_table.h"

#include <fmt/format.h>

#include "ndmesh/mesh/rule_messages.h"

namespace ndmesh::mesh {
namespace {

bool kv_heads_hold(const RuleInput& in) {
  return in.kv_heads % in.mesh.tp == 0 || in.mesh.tp % in.kv_heads == 0;
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

bool expert_ranks_hold(const RuleInput& in) {
  const std::int64_t ranks = in.mesh.stage_ranks();
  return ranks % in.mesh.ep == 0 && ranks / in.mesh.ep % in.mesh.etp == 0;
}

bool expert_runtime_holds(const RuleInput& in) {
  if (!in.runtime.has_experts) return in.mesh.ep == 1 && in.mesh.etp == 1;
  return in.runtime.cuts_experts_freely || in.mesh.etp == 1 || in.mesh.etp == in.mesh.tp;
}

bool zero_holds(const RuleInput& in) {
  const RuntimeLimits& runtime = in.runtime;
  return *in.zero <= runtime.most_zero && (in.mesh.pp == 1 || *in.zero <= runtime.most_zero_staged) &&
         (in.mesh.ep == 1 || in.mesh.tp == 1 || *in.zero <= runtime.most_zero_experts);
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
    {{"hidden width", "tp is at most the hidden size"},
     [](In in) { return in.hidden > 0; },
     [](In in) { return in.mesh.tp <= in.hidden; },
     [](In in) {
       return fmt::format("mesh.tp_size: {} ranks for a hidden size (hidden_size) of {}; at most {}",
                          in.mesh.tp, in.hidden, in.hidden);
     }},
    {{"expert width", "etp is at most the width of an expert"},
     [](In in) { return in.experts > 0 && in.expert_ffn > 0; },
     [](In in) { return in.mesh.etp <= in.expert_ffn; },
     [](In in) {
       return fmt::format(
           "mesh.etp_size: {} ranks for an expert width (moe_intermediate_size) of {}; at most {}",
           in.mesh.etp, in.expert_ffn, in.expert_ffn);
     }},
    {{"sharding", "with shard.zero 0 dp_shard is 1: whole copies are dp_replicate's"},
     [](In in) { return in.zero.has_value(); },
     [](In in) { return *in.zero > 0 || in.mesh.dp_shard == 1; },
     [](In in) {
       return fmt::format(
           "shard.zero is 0, but mesh.dp_shard_size is {}; allowed: shard.zero 1 to 3, or "
           "mesh.dp_replicate_size {} "
           "for whole copies",
           in.mesh.dp_shard, in.mesh.batch_ranks());
     }},

    // What the target runtime can do
    {{"runtime: pipeline", "the runtime has pipeline stages, or pp is 1"},
     [](In) { return true; },
     [](In in) { return in.runtime.has_pipeline || in.mesh.pp == 1; },
     [](In in) { return runtime_message(in, Axis::pp, "has no pipeline stages; allowed: 1"); }},
    {{"runtime: context", "the runtime has context parallelism, or cp is 1"},
     [](In) { return true; },
     [](In in) { return in.runtime.has_context || in.mesh.cp == 1; },
     [](In in) { return runtime_message(in, Axis::cp, "has no context parallelism; allowed: 1"); }},
    {{"runtime: experts", "the runtime has expert parallelism of that kind, or ep and etp are 1"},
     [](In in) { return in.experts > 0; },
     expert_runtime_holds,
     expert_runtime_message},
    {{"runtime: KV heads", "tp divides the KV heads where the runtime does not let ranks share one"},
     [](In in) { return in.kv_heads > 0 && !in.runtime.shares_kv_heads && kv_heads_hold(in); },
     [](In in) { return in.kv_heads % in.mesh.tp == 0; },
     [](In in) {
       return runtime_message(in, Axis::tp,
                              fmt::format("does not share the {} KV heads (num_key_value_heads) among "
                                          "more ranks; allowed are their divisors",
                                          in.kv_heads));
     }},
    {{"runtime: equal parts", "tp divides hidden and feed-forward width where the runtime cuts equally only"},
     [](In in) { return !in.runtime.cuts_unequally; },
     [](In in) {
       return in.hidden % in.mesh.tp == 0 && in.ffn % in.mesh.tp == 0 &&
              (in.runtime.pads_vocabulary || in.vocab % in.mesh.tp == 0);
     },
     equal_parts_message},
    {{"runtime: equal stages", "pp x chunks divides the layers where the runtime needs equal stages"},
     [](In in) {
       return !in.runtime.has_unequal_stages && in.layers > 0 && in.mesh.pp <= in.layers / in.chunks;
     },
     [](In in) { return in.layers % (in.mesh.pp * in.chunks) == 0; },
     equal_stages_message},
    {{"runtime: tied tables", "pp is 1 for a tied model where the runtime does not tie over stages"},
     [](In in) { return in.tied && !in.runtime.ties_over_stages; },
     [](In in) { return in.mesh.pp == 1; },
     [](In in) {
       return runtime_message(in, Axis::pp,
                              "does not tie input and output table (tie_word_embeddings) over "
                              "stages; allowed: 1");
     }},
    {{"runtime: replicas", "dp_replicate with tp or cp needs dp_shard where the runtime asks for it"},
     [](In in) { return !in.runtime.replicates_unsharded && (in.mesh.tp > 1 || in.mesh.cp > 1); },
     [](In in) { return in.mesh.dp_replicate == 1 || in.mesh.dp_shard > 1; },
     [](In in) {
       return runtime_message(in, Axis::dp_replicate,
                              "replicates beside tp or cp only with mesh.dp_shard_size above 1");
     }},
    {{"runtime: zero", "shard.zero is what the runtime has, alone, with pipeline stages, with ep and tp"},
     [](In in) { return in.zero.has_value(); },
     zero_holds,
     zero_message},
};

}  // namespace

std::span<const RuleEntry> rule_table() {
  return table;
}

}  // namespace ndmesh::mesh
