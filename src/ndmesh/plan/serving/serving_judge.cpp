#include "ndmesh/plan/serving/serving_judge.h"

#include <algorithm>

#include "ndmesh/plan/integers.h"
#include "ndmesh/plan/serving/serving_placement.h"

namespace ndmesh::plan {
namespace {

/// Longest sequence of a model without a limit, in tokens.
constexpr std::int64_t most_tokens = std::int64_t{1} << 30;

}  // namespace

ServingJudge::ServingJudge(const ServingQuestion& question)
    : question_(question), memory_(question), rules_{question.keys.kv_policy, question.keys.kv_block} {}

std::int64_t ServingJudge::replicas(const Replica& replica) const {
  return question_.held.dp_replicate ? *question_.held.dp_replicate / replica.attention_ranks
                                     : replicas_on(question_.cluster, replica.ranks());
}

std::int64_t ServingJudge::Load::sequences(std::int64_t room) const {
  return std::max<std::int64_t>(0, (room - prefix) / std::max<std::int64_t>(1, sequence));
}

ServingJudge::Load ServingJudge::load(const ServingBudget& budget) const {
  const std::int64_t context = context_of(question_);
  const bool reserve = rules_.policy == job::KvPolicy::reserve;
  const std::int64_t length = reserve ? context : mean_context_of(question_);
  const auto in_common = static_cast<std::int64_t>(static_cast<double>(length) * question_.keys.prefix_share);
  const std::int64_t shared = reserve ? 0 : in_common / rules_.block * rules_.block;
  return {sequence_bytes(budget.cache, rules_, shared),
          own_bytes(budget.cache, rules_, length, shared) + budget.logits_per_sequence,
          sequence_bytes(budget.cache, rules_, context) + budget.logits_per_sequence};
}

std::int64_t ServingJudge::longest(const std::vector<ServingBudget>& budgets) const {
  std::int64_t tokens = question_.model.max_positions > 0 ? question_.model.max_positions : most_tokens;
  for (const ServingBudget& budget : budgets) {
    tokens = longest_sequence(budget.cache, rules_, budget.room - budget.logits_per_sequence, tokens);
  }
  return tokens;
}

MemoryBytes ServingJudge::memory(const ServingBudget& budget, std::int64_t sequences) const {
  const Load load = this->load(budget);
  const std::int64_t own = load.sequence - budget.logits_per_sequence;
  const std::int64_t cache = std::min(most_bytes, load.prefix + capped_product(sequences, own));
  MemoryBytes bytes = budget.bytes;
  bytes[MemoryCategory::kv_cache] = std::max(cache, load.longest - budget.logits_per_sequence);
  bytes[MemoryCategory::logits] = capped_product(sequences, budget.logits_per_sequence);
  return bytes;
}

ServingPlan ServingJudge::judge(const Replica& replica) const {
  ServingPlan plan;
  plan.replica = replica;
  plan.replicas = replicas(replica);
  const std::vector<ServingBudget> budgets = memory_.budgets(replica);
  const auto sequences = [&](const ServingBudget& budget) { return load(budget).sequences(budget.room); };
  plan.worst = *std::min_element(budgets.begin(), budgets.end(), [&](const auto& a, const auto& b) {
    return std::pair(sequences(a), a.room) < std::pair(sequences(b), b.room);
  });
  const std::int64_t caches = plan.replicas * replica.attention_ranks;
  const std::int64_t each = sequences(plan.worst);
  const std::int64_t wanted =
      std::max<std::int64_t>(1, ceil_div(question_.keys.concurrency, std::max<std::int64_t>(1, caches)));
  plan.max_context = longest(budgets);
  plan.fits = caches > 0 && plan.max_context >= context_of(question_) && each >= wanted;
  plan.concurrency = capped_product(each, caches);
  plan.memory = memory(plan.worst, plan.fits ? each : wanted);
  return plan;
}

std::int64_t excess(const ServingQuestion& question, const ServingPlan& plan) {
  return plan.memory.total() - question.cluster.usable_bytes;
}

}  // namespace ndmesh::plan
