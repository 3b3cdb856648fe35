#pragma once

#include <optional>
#include <vector>

#include "ndmesh/plan/search/judge.h"
#include "ndmesh/plan/search/space.h"

namespace ndmesh::plan {

/// A candidate of a mesh but for sharding and order: indices into MeshOptions, and a bound of its time.
struct Choice {
  double bound = 0;  ///< seconds
  std::size_t staging = 0;
  std::size_t micro = 0;
  std::size_t recompute = 0;
};

/// Judges all candidates of one mesh at once, best bounds first. Not shared between threads.
class MeshJudge {
 public:
  MeshJudge(const Problem& problem, const Constants& constants) : judge_(problem, constants) {}

  /// No candidate of any mesh that differs from this one only in how batch ranks are split into dp_shard and
  /// dp_replicate takes less time.
  double least_seconds(const MeshOptions& options) const;
  /// The choices of all these meshes that may take at most `limit` seconds, by bound.
  std::vector<Choice> choices(const MeshOptions& options, double limit) const;
  /// No candidate needs less memory.
  std::int64_t least_bytes(const MeshOptions& options) const;

  /// The fastest candidate among `choices` that fits, unless it takes more than `limit` seconds: nothing
  /// then, or when none fits.
  std::optional<Plan> fastest(const MeshOptions& options, const std::vector<Choice>& choices, double limit);
  /// The candidate that needs the least memory, unless that is more than `limit` bytes.
  std::optional<Plan> leanest(const MeshOptions& options, std::int64_t limit) const;

  /// Candidates that fastest() has simulated so far.
  std::int64_t simulated() const { return simulated_; }

 private:
  void try_orders(const MeshOptions& options, Candidate candidate, double& limit, std::optional<Plan>& best);

  Judge judge_;
  std::int64_t simulated_ = 0;
};

}  // namespace ndmesh::plan
