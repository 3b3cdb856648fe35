#pragma once

#include <array>

#include "ndmesh/base/memory_category.h"
#include "ndmesh/plan/memory/activation_bytes.h"
#include "ndmesh/plan/memory/memory_states.h"
#include "ndmesh/plan/memory/stage_units.h"

namespace ndmesh::plan {

/// The instants of a step at which memory can be largest, each with everything that exists then. Those a
/// stage does not have are empty.
struct Moments {
  MemoryBytes loss;            ///< all activations and the logits
  MemoryBytes block_backward;  ///< all activations, and what the last block's backward takes
  MemoryBytes end_backward;    ///< the input table's gradient, activations gone
  MemoryBytes step;            ///< all states
  std::int64_t host = 0;

  std::array<const MemoryBytes*, 4> all() const { return {&loss, &block_backward, &end_backward, &step}; }
  const MemoryBytes& largest() const;
  MemoryBytes peaks() const;  ///< by category, over all instants
};

/// Everything that decides about a stage.
struct StageInput {
  const Problem& problem;
  const Candidate& candidate;
  const Parts& parts;
  const ModelBytes& bytes;
  const Activations& activations;
  const StageUnits& units;
};

Moments stage_moments(const StageInput& input);

/// Parameters, master weights, gradients and optimizer.
std::int64_t states_of(const MemoryBytes& bytes);

}  // namespace ndmesh::plan
