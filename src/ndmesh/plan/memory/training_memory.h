#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ndmesh/base/memory_category.h"
#include "ndmesh/layout/layout.h"
#include "ndmesh/plan/problem.h"

namespace ndmesh::plan {

/// What a device of one pipeline rank needs in steady state (optimizer state present): of its ranks the one
/// that holds most.
struct StageBudget {
  std::int64_t stage = 0;  ///< pipeline rank
  std::int64_t rank = 0;   ///< of the mesh
  MemoryBytes at_peak;     ///< by category, at the instant when the sum is largest; headroom not counted
  MemoryBytes peaks;       ///< each category's own peak over a step
  /// What the allocator takes from the device for at_peak, and what lives outside it (context, communicator
  /// buffers): what must fit.
  std::int64_t reserved = 0;
  std::int64_t outside = 0;     ///< the part of `reserved` that lives outside the allocator
  std::int64_t host_bytes = 0;  ///< host memory of this rank: offloaded states and activations
};

/// Budgets of candidates for one problem. Walks layouts and schedule; keeps what candidates share, so that
/// one object judges many quickly. Candidates have passed the mesh rules. Not shared between threads: each
/// has its own. `problem` outlives it.
class MemoryModel {
 public:
  explicit MemoryModel(const Problem& problem);
  ~MemoryModel();
  MemoryModel(MemoryModel&&) noexcept;

  /// One budget per pipeline rank.
  std::vector<StageBudget> budgets(const Candidate& candidate) const;
  /// What one rank of the mesh needs, which is less than its stage's budget where shards are uneven.
  StageBudget budget_of(const Candidate& candidate, std::int64_t rank) const;
  /// The one with the most reserved bytes.
  StageBudget worst(const Candidate& candidate) const;
  /// The decoder layers of every stage of a candidate, in the order of the model, as Problem::layers says: what a run of it
  /// has. By memory: leanest_cut, by the bytes that ranks reserve. Valid until the next call.
  const std::vector<layout::Range>& stages(const Candidate& candidate) const;
  /// Never above worst().reserved, and much cheaper: states and one micro-batch.
  std::int64_t least_bytes(const Candidate& candidate) const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

/// Bytes of one device that a plan may use: usable memory less headroom.
std::int64_t allowed_bytes(const Problem& problem);

}  // namespace ndmesh::plan
