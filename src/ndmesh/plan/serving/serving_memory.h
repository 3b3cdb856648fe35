#pragma once

#include <cstdint>
#include <vector>

#include "ndmesh/plan/serving/serving.h"

namespace ndmesh::plan {

/// Budgets of replicas for one question: keeps what replicas share. The question outlives it.
class ServingMemory {
 public:
  explicit ServingMemory(const ServingQuestion& question);

  /// One a pipeline stage.
  std::vector<ServingBudget> budgets(const Replica& replica) const;

 private:
  /// Layers that are alike.
  struct Kind {
    model::LayerKind kind;
    std::vector<model::LayerParameter> parameters;
  };

  /// What one layer of a kind holds on the fullest rank: bytes.
  struct Layer {
    std::int64_t weights = 0;
    std::int64_t prefill = 0;
  };

  Layer layer(const Kind& kind, const Replica& replica) const;
  std::vector<std::int64_t> count_kinds(const Replica& replica, std::int64_t stage) const;
  std::int64_t end_bytes(const Replica& replica, std::int64_t stage) const;
  void add_layers(const Replica& replica, const std::vector<Layer>& layers, ServingBudget& budget) const;

  const ServingQuestion& question_;
  std::vector<Kind> kinds_;
  std::vector<std::size_t> kind_of_layer_;
  std::vector<model::ParameterSpec> ends_;
};

}  // namespace ndmesh::plan
