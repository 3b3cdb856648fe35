#include "ndmesh/plan/serving/serving_memory.h"

#include <algorithm>

#include "ndmesh/layout/layout.h"
#include "ndmesh/plan/integers.h"
#include "ndmesh/plan/serving/serving_weights.h"
#include "ndmesh/plan/serving/serving_widths.h"

namespace ndmesh::plan {
namespace {

constexpr std::int64_t mebi = std::int64_t{1} << 20;

/// Device context, kernels and what the allocator cannot use: what the measured cache capacities of a serving
/// engine (DistServe, OPT-66B and OPT-175B on A100) leave beside weights, cache and activations; the same on
/// every mesh.
constexpr std::int64_t context_bytes = 450 * mebi;

/// Buffers of a communicator, as aiconfigurator's tables have them for NCCL.
constexpr std::int64_t communicator_bytes(std::int64_t ranks) {
  if (ranks == 1) {
    return 0;
  }
  return (ranks < 4 ? 342 : 392) * mebi;
}

/// A sequence's row of logits: bfloat16 as computed and float32 as sampled, over the whole vocabulary.
constexpr std::int64_t logit_bytes = 2 + 4;

}  // namespace

ServingMemory::ServingMemory(const ServingQuestion& question) : question_(question) {
  const model::ModelSpec& model = question.model;
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    const model::LayerKind kind = model.layer_kind(layer);
    const auto same =
        std::find_if(kinds_.begin(), kinds_.end(), [&](const Kind& known) { return known.kind == kind; });
    kind_of_layer_.push_back(static_cast<std::size_t>(same - kinds_.begin()));
    if (same == kinds_.end()) {
      kinds_.push_back({kind, model.layer_parameters(layer)});
    }
  }
  ends_ = model.end_parameters();
}

std::vector<std::int64_t> ServingMemory::count_kinds(const Replica& replica, std::int64_t stage) const {
  std::vector<std::int64_t> count(kinds_.size());
  const layout::Range layers = layout::stage_layers(question_.model.layers, replica.pp, stage);
  for (std::int64_t layer = layers.start; layer < layers.start + layers.size; ++layer) {
    ++count[kind_of_layer_[static_cast<std::size_t>(layer)]];
  }
  return count;
}

/// Input table and positions on the first stage, the rest on the last; a tied table on both.
std::int64_t ServingMemory::end_bytes(const Replica& replica, std::int64_t stage) const {
  const model::ModelSpec& model = question_.model;
  std::int64_t bytes = 0;
  for (const model::ParameterSpec& end : ends_) {
    const bool table = end.role == model::Role::embedding;
    const bool at_first = table || end.role == model::Role::positions;
    const bool at_last = !at_first || (table && model.tied);
    if ((stage == 0 && at_first) || (stage == replica.pp - 1 && at_last)) {
      const layout::Part part = layout::fullest_part({end}, model, replica.mesh());
      bytes = capped_sum(bytes, part_bytes(question_.keys.weights, end, part));
    }
  }
  return bytes;
}

ServingMemory::Layer ServingMemory::layer(const Kind& kind, const Replica& replica) const {
  Layer layer;
  for (const model::LayerParameter& parameter : kind.parameters) {
    const layout::Part part = layout::fullest_part(parameter, question_.model, replica.mesh());
    layer.weights = capped_sum(layer.weights, part_bytes(question_.keys.weights, parameter.spec, part));
  }
  layer.prefill = prefill_bytes(question_.model, kind.kind.moe, replica, question_.keys.prefill_chunk);
  return layer;
}

void ServingMemory::add_layers(const Replica& replica, const std::vector<Layer>& layers,
                               ServingBudget& budget) const {
  const std::vector<std::int64_t> count = count_kinds(replica, budget.stage);
  const std::int64_t kv = kv_bytes_of_layer(question_.model, question_.keys.kv_dtype, replica.tp);
  std::int64_t& weights = budget.bytes[MemoryCategory::parameters];
  std::int64_t& prefill = budget.bytes[MemoryCategory::activations];
  for (std::size_t i = 0; i < kinds_.size(); ++i) {
    if (count[i] == 0) {
      continue;
    }
    weights = capped_sum(weights, capped_product(layers[i].weights, count[i]));
    prefill = std::max(prefill, layers[i].prefill);
    std::int64_t& cache = kinds_[i].kind.windowed ? budget.cache.windowed : budget.cache.full;
    cache = capped_sum(cache, capped_product(kv, count[i]));
  }
  budget.cache.window = question_.model.sliding_window.value_or(0);
}

std::vector<ServingBudget> ServingMemory::budgets(const Replica& replica) const {
  std::vector<Layer> layers;
  for (const Kind& kind : kinds_) {
    layers.push_back(layer(kind, replica));
  }
  const std::int64_t communicators = communicator_bytes(replica.ranks());
  const std::int64_t usable = question_.cluster.usable_bytes;
  std::vector<ServingBudget> list;
  for (std::int64_t stage = 0; stage < replica.pp; ++stage) {
    ServingBudget& budget = list.emplace_back();
    budget.stage = stage;
    budget.rank = stage * replica.tp;
    budget.bytes[MemoryCategory::parameters] = end_bytes(replica, stage);
    add_layers(replica, layers, budget);
    budget.bytes[MemoryCategory::buffers] = communicators;
    budget.bytes[MemoryCategory::workspace] = context_bytes;
    budget.bytes[MemoryCategory::headroom] =
        static_cast<std::int64_t>(static_cast<double>(usable) * question_.headroom);
    budget.outside = communicators + context_bytes;
    const bool last = stage == replica.pp - 1;
    budget.logits_per_sequence = last ? capped_product(question_.model.vocab, logit_bytes) : 0;
    budget.room = usable - budget.bytes.total();
  }
  return list;
}

std::vector<ServingBudget> serving_budgets(const ServingQuestion& question, const Replica& replica) {
  return ServingMemory(question).budgets(replica);
}

}  // namespace ndmesh::plan
