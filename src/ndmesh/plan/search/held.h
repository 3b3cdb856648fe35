#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ndmesh/plan/problem.h"

namespace ndmesh::plan {

/// What is held and what is searched: a value holds, nothing leaves it open.
struct Held {
  std::optional<std::int64_t> tp, cp, dp_shard, dp_replicate, pp, ep, etp, micro, chunks, zero;
  std::optional<schedule::Kind> schedule;
  std::optional<bool> reshard;
  std::optional<job::Recompute> recompute;
  std::optional<mesh::AxisOrder> order;
  job::Offload offload = job::Offload::none;  ///< never searched: a fix, unless asked for
  bool offload_activations = false;           ///< likewise
  bool sequence_parallel = true;              ///< likewise

  const std::optional<std::int64_t>& size(mesh::Axis axis) const;
  std::optional<std::int64_t>& size(mesh::Axis axis);
  /// Leaves all axes open, ep and etp too.
  void open_mesh();
};

/// The rules' numbers of a problem on a mesh; micro, zero and chunks are left open.
mesh::RuleInput rule_input(const Problem& problem, const mesh::MeshSizes& mesh);

/// Every rule that what is held breaks by itself, whatever the rest will be: mesh rules, schedule, the target
/// runtime's support. In the user's key names; empty when something may be legal.
std::vector<std::string> broken_by(const Problem& problem, const Held& held);

/// Why no candidate at all is legal, when nothing held is wrong by itself: the rules that the most natural
/// completion breaks (the ranks that are left go to dp_shard).
std::vector<std::string> nothing_legal(const Problem& problem, const Held& held);

}  // namespace ndmesh::plan
