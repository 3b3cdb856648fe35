#include "ndmesh/mesh/rules.h"

#include <fmt/format.h>

#include <algorithm>

#include "ndmesh/base/error.h"
#include "ndmesh/base/integers.h"
#include "ndmesh/mesh/rule_table.h"

namespace ndmesh::mesh {
namespace {

constexpr Rule positive_sizes = {"sizes", "every size is at least 1"};

/// Reports a size below 1 and sets it to 1, so that the other rules can be asked.
void correct(std::int64_t& size, std::string_view name, std::vector<std::string>& broken) {
  if (size >= 1) return;
  broken.push_back(fmt::format("mesh.{}_size: {} is not allowed; the least is 1", name, size));
  size = 1;
}

/// "16 layers on 5 stages: 1 of 4, 4 of 3".
std::string uneven_parts(std::string_view what, std::int64_t count, std::string_view parts,
                         std::int64_t number) {
  const std::int64_t larger = count % number;
  return fmt::format("{} {} on {} {}: {} of {}, {} of {}", count, what, number, parts, larger,
                     count / number + 1, number - larger, count / number);
}

void note_tp(const RuleInput& in, std::vector<std::string>& notes) {
  const std::int64_t tp = in.mesh.tp;
  if (in.vocab % tp != 0) {
    notes.push_back(fmt::format(
        "vocab_size {} is padded inside to {}, a multiple of mesh.tp_size {}; files and counts keep {}",
        in.vocab, round_up(in.vocab, tp), tp, in.vocab));
  }
  if (in.kv_heads > 0 && tp > in.kv_heads && tp % in.kv_heads == 0) {
    notes.push_back(fmt::format("each of the {} KV heads is held by {} of the {} tp ranks", in.kv_heads,
                                tp / in.kv_heads, tp));
  }
  if (in.ffn % tp != 0) notes.push_back(uneven_parts("feed-forward rows", in.ffn, "tp ranks", tp));
}

void note_pipeline(const RuleInput& in, std::vector<std::string>& notes) {
  const std::int64_t pp = in.mesh.pp;
  if (in.layers >= pp && in.layers % pp != 0)
    notes.push_back(uneven_parts("layers", in.layers, "stages", pp));
  const std::optional<std::int64_t> count = micro_batches(in);
  if (count && *count < pp) {
    notes.push_back(
        fmt::format("mesh.pp_size {} with {} micro-batches: the pipeline waits for {:.1f} % of a step", pp,
                    *count, 100 * pipeline_bubble(pp, *count)));
  }
}

}  // namespace

RuleInput rule_input(const model::ModelSpec& spec, const MeshSizes& mesh) {
  RuleInput input;
  input.heads = spec.heads;
  // The keys and values of latent attention come out of the latent for every query head.
  input.kv_heads = spec.latent ? spec.heads : spec.kv_heads;
  input.vocab = spec.vocab;
  input.hidden = spec.hidden;
  input.ffn = spec.ffn;
  input.experts = spec.experts ? spec.experts->count : 0;
  input.expert_ffn = spec.experts ? spec.experts->ffn : 0;
  input.tied = spec.tied;
  input.layers = spec.layers;
  input.max_positions = spec.max_positions;
  input.mesh = mesh;
  return input;
}

std::vector<Rule> all_rules() {
  std::vector<Rule> rules = {positive_sizes};
  for (const RuleEntry& entry : rule_table()) rules.push_back(entry.rule);
  return rules;
}

std::vector<std::string> broken_rules(const RuleInput& input) {
  std::vector<std::string> broken;
  RuleInput in = input;
  for (const Axis axis : all_axes) correct(in.mesh.size(axis), name_of(axis), broken);
  correct(in.mesh.ep, "ep", broken);
  correct(in.mesh.etp, "etp", broken);
  for (const RuleEntry& entry : rule_table()) {
    if (entry.applies(in) && !entry.holds(in)) broken.push_back(entry.message(in));
  }
  return broken;
}

bool is_legal(const RuleInput& input) {
  const auto table = rule_table();
  return std::all_of(table.begin(), table.end(),
                     [&](const RuleEntry& entry) { return !entry.applies(input) || entry.holds(input); });
}

std::vector<std::string> rule_notes(const RuleInput& input) {
  std::vector<std::string> notes;
  note_tp(input, notes);
  note_pipeline(input, notes);
  return notes;
}

std::vector<std::int64_t> legal_tp_sizes(std::int64_t heads, std::int64_t kv_heads, bool replication) {
  std::vector<std::int64_t> legal;
  if (heads % kv_heads != 0) return legal;
  for (std::int64_t tp = 1; tp <= heads; ++tp) {
    const bool kv_fits = kv_heads % tp == 0 || (replication && tp % kv_heads == 0);
    if (heads % tp == 0 && kv_fits) legal.push_back(tp);
  }
  return legal;
}

std::optional<std::int64_t> micro_batches(const RuleInput& input) {
  if (input.global_batch < 1 || input.micro_batch < 1) return std::nullopt;
  const std::int64_t batch_ranks = input.mesh.batch_ranks();
  // Divided one after the other: the product may not fit.
  if (input.global_batch % batch_ranks != 0 || input.global_batch / batch_ranks % input.micro_batch != 0) {
    return std::nullopt;
  }
  return input.global_batch / batch_ranks / input.micro_batch;
}

std::int64_t sequence_multiple(const MeshSizes& mesh, ContextSplit context) {
  if (mesh.cp == 1) return mesh.tp;
  return mesh.tp * mesh.cp * (context == ContextSplit::sequence ? 2 : 1);
}

double pipeline_bubble(std::int64_t pp, std::int64_t micro_batches) {
  return static_cast<double>(pp - 1) / static_cast<double>(micro_batches + pp - 1);
}

std::int64_t resolve_dp_shard(const MeshSizes& others, std::int64_t world) {
  MeshSizes rest = others;
  rest.dp_shard = rest.ep = rest.etp = 1;
  const std::int64_t ranks = rest.world();
  if (world < 1 || world % ranks != 0) {
    const std::int64_t lower = world / ranks * ranks;
    throw RequestError(
        fmt::format("mesh.dp_shard_size: auto needs a run whose ranks are a multiple of the other sizes, {} "
                    "= {}, but it has {}; nearest: {}",
                    rest.name(), ranks, world,
                    lower > 0 ? fmt::format("{} or {}", lower, lower + ranks) : fmt::format("{}", ranks)));
  }
  return world / ranks;
}

}  // namespace ndmesh::mesh
