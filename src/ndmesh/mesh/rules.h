#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ndmesh/mesh/mesh.h"
#include "ndmesh/model/model_spec.h"
#include "ndmesh/schedule/interleaving.h"

namespace ndmesh::mesh {

using schedule::interleaves;
using schedule::Interleaving;

/// What cp divides inside attention: the sequence (ring, all-gather) or, by all-to-all, the heads.
enum class ContextSplit { sequence, heads };

/// What the runtime that a mesh is meant for (plan.runtime) can do. The defaults refuse nothing.
struct RuntimeLimits {
  std::string_view name;               ///< as in plan.runtime
  bool has_pipeline = true;            ///< pp above 1
  bool has_context = true;             ///< cp above 1
  bool has_experts = true;             ///< ep above 1
  bool shares_kv_heads = true;         ///< tp above the number of KV heads
  bool pads_vocabulary = true;         ///< tp need not divide it
  bool cuts_unequally = true;          ///< tp need not divide hidden and feed-forward width
  bool has_unequal_stages = true;      ///< pp x chunks need not divide the layers
  bool ties_over_stages = true;        ///< tied tables with pp above 1
  bool replicates_unsharded = true;    ///< dp_replicate above 1 with tp or cp, without dp_shard
  bool cuts_experts_freely = true;     ///< etp need not be 1 or tp
  std::int64_t most_zero = 3;          ///< shard.zero
  std::int64_t most_zero_staged = 3;   ///< shard.zero with pp above 1
  std::int64_t most_zero_experts = 3;  ///< shard.zero with ep and tp above 1
};

/// What the rules look at: plain numbers. A number of 0 is not known, and the rules about it do not apply.
struct RuleInput {
  // Model
  std::int64_t heads = 0;          ///< query heads
  std::int64_t kv_heads = 0;       ///< key/value heads
  std::int64_t vocab = 0;          ///< tokens
  std::int64_t hidden = 0;         ///< width between the layers
  std::int64_t ffn = 0;            ///< width of the feed-forward part
  std::int64_t expert_ffn = 0;     ///< width of one expert
  std::int64_t layers = 0;         ///< decoder layers
  std::int64_t max_positions = 0;  ///< longest sequence of the model, in tokens
  std::int64_t experts = 0;        ///< of one layer; 0 means a dense model, to which the rules do apply
  bool tied = false;               ///< one table for input and output

  // Job
  MeshSizes mesh;
  std::int64_t global_batch = 0;  ///< batch.global, in sequences
  std::int64_t micro_batch = 0;   ///< batch.micro
  std::int64_t seq_len = 0;       ///< batch.seq_len, in tokens
  ContextSplit context = ContextSplit::sequence;
  std::int64_t chunks = 1;  ///< pipeline chunks of each rank; more than 1 is interleaved
  Interleaving interleaving = Interleaving::classic;

  std::optional<std::int64_t> zero;   ///< shard.zero, where it is decided
  std::optional<std::int64_t> world;  ///< ranks that there are, where known
  RuntimeLimits runtime;
};

/// An input with the numbers of `spec` on a mesh; batch, zero, world and runtime are left open.
RuleInput rule_input(const model::ModelSpec& spec, const MeshSizes& mesh);

/// One validity rule, for help and documentation.
struct Rule {
  std::string_view name;
  std::string_view statement;  ///< what must hold
};
std::vector<Rule> all_rules();

/// Every rule that `input` breaks, in the order of all_rules, one message each: the offending numbers and the
/// nearest legal values, in the user's key names. Empty when the mesh is legal. Sizes below 1 are reported,
/// and then counted as 1 for the other rules.
std::vector<std::string> broken_rules(const RuleInput& input);

/// Whether broken_rules would be empty, without the words. Sizes are at least 1.
bool is_legal(const RuleInput& input);

/// What a legal mesh changes or costs without being refused: vocabulary padding, shared KV heads, parts and
/// stages of unequal size, a large pipeline bubble. One sentence each.
std::vector<std::string> rule_notes(const RuleInput& input);

/// Tensor-parallel sizes that cut `heads` and `kv_heads` into whole heads, ascending; with `replication` also
/// those where each KV head is held by tp / kv_heads ranks. None when the query heads are no multiple of the
/// KV heads.
std::vector<std::int64_t> legal_tp_sizes(std::int64_t heads, std::int64_t kv_heads, bool replication);

/// Micro-batches of one step on each batch rank; nothing when the batch does not divide or is not known.
std::optional<std::int64_t> micro_batches(const RuleInput& input);

/// A sequence must be a multiple of this: tp (sequence parallel) times 2 * cp (two pieces for each rank, so
/// that causal work is balanced), or times cp when attention is split by heads. A packed document needs the
/// part of cp only.
std::int64_t sequence_multiple(const MeshSizes& mesh, ContextSplit context);

/// Share of a step in which a pipeline of equal stages waits: (pp - 1) / (micro_batches + pp - 1).
double pipeline_bubble(std::int64_t pp, std::int64_t micro_batches);

/// dp_shard for `mesh.dp_shard_size: auto`: what `world` leaves beside the other sizes. RequestError when
/// that is not whole.
std::int64_t resolve_dp_shard(const MeshSizes& others, std::int64_t world);

}  // namespace ndmesh::mesh
