#pragma once

#include "ndmesh/plan/serving/serving.h"
#include "ndmesh/plan/serving/serving_memory.h"

namespace ndmesh::plan {

/// Judges replicas for one question, which outlives it.
class ServingJudge {
 public:
  explicit ServingJudge(const ServingQuestion& question);

  /// How many of these the cluster holds, or the request says.
  std::int64_t replicas(const Replica& replica) const;
  /// The whole plan but for levels and reasons. `replica` is legal.
  ServingPlan judge(const Replica& replica) const;

 private:
  /// What sequences of the wanted lengths take on one rank: bytes.
  struct Load {
    std::int64_t prefix = 0;    ///< held once
    std::int64_t sequence = 0;  ///< one more of mean length, with its logits
    std::int64_t longest = 0;   ///< one of plan.context, with its logits
    std::int64_t sequences(std::int64_t room) const;
  };

  Load load(const ServingBudget& budget) const;
  std::int64_t longest(const std::vector<ServingBudget>& budgets) const;
  MemoryBytes memory(const ServingBudget& budget, std::int64_t sequences) const;

  const ServingQuestion& question_;
  ServingMemory memory_;
  CacheRules rules_;
};

/// Bytes by which the plan's memory exceeds the device; not positive when it fits.
std::int64_t excess(const ServingQuestion& question, const ServingPlan& plan);

}  // namespace ndmesh::plan
