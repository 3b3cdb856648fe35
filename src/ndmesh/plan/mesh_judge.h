#pragma once

#include <limits>
#include <optional>

#include "ndmesh/plan/judge.h"
#include "ndmesh/plan/space.h"

namespace ndmesh::plan {

/// What no candidate of a mesh can be better than.
struct MeshBounds {
  double seconds =
      std::numeric_limits<double>::infinity();  ///< of those that may fit; infinite when none may
  std::int64_t bytes = std::numeric_limits<std::int64_t>::max();
  std::int64_t legal = 0;  ///< candidates
};

/// Judges all candidates of one mesh at once, best bounds first. Not shared between threads.
class MeshJudge {
 public:
  MeshJudge(const Problem& problem, const Constants& constants) : judge_(problem, constants) {}

  MeshBounds bounds(const MeshOptions& options) const;

  /// The fastest candidate that fits, unless it takes more than `limit` seconds: nothing then, or when none fits.
  std::optional<Plan> fastest(const MeshOptions& options, double limit);
  /// The candidate that needs the least memory, unless that is more than `limit` bytes.
  std::optional<Plan> leanest(const MeshOptions& options, std::int64_t limit);

  /// Candidates that fastest() has simulated so far.
  std::int64_t simulated() const { return simulated_; }

 private:
  Judge judge_;
  std::int64_t simulated_ = 0;
};

}  // namespace ndmesh::plan
