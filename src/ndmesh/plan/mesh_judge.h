#pragma once

#include <limits>
#include <optional>

#include "ndmesh/plan/judge.h"
#include "ndmesh/plan/space.h"

namespace ndmesh::plan {

/// Judges all candidates of one mesh at once, best bounds first. Not shared between threads.
class MeshJudge {
 public:
  MeshJudge(const Problem& problem, const Constants& constants) : judge_(problem, constants) {}

  /// No candidate takes less time.
  double least_seconds(const MeshOptions& options) const;
  /// No candidate needs less memory.
  std::int64_t least_bytes(const MeshOptions& options) const;

  /// The fastest candidate that fits, unless it takes more than `limit` seconds: nothing then, or when none
  /// fits.
  std::optional<Plan> fastest(const MeshOptions& options, double limit);
  /// The candidate that needs the least memory, unless that is more than `limit` bytes.
  std::optional<Plan> leanest(const MeshOptions& options, std::int64_t limit) const;

  /// Candidates that fastest() has simulated so far.
  std::int64_t simulated() const { return simulated_; }

 private:
  Judge judge_;
  std::int64_t simulated_ = 0;
};

}  // namespace ndmesh::plan
