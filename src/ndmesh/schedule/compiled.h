#pragma once

#include <memory>

#include "ndmesh/schedule/schedule.h"

namespace ndmesh::schedule {

/// Forward, backward (or input gradient), weight gradient.
constexpr std::uint32_t pass_kinds = 3;

/// A compute action as the simulation needs it.
struct Step {
  std::uint32_t after =
      0;  ///< index of the step on another rank or chunk that it waits for; past the end: none
  std::uint32_t cost = 0;  ///< kind of pass x stages + stage
  std::uint32_t rank = 0;
};

/// All compute actions of a shape, each behind what it waits for; those of one rank in its order.
struct CompiledOrder {
  std::int64_t ranks = 1;
  ActionKind backward = ActionKind::backward;  ///< or input_grad
  std::vector<Step> steps;
  std::vector<std::int32_t> micro_batches;  ///< by step
};

/// The order of `shape`, from a cache of this thread that keeps about a million steps of the shapes used last.
/// RequestError with problems_of.
std::shared_ptr<const CompiledOrder> compiled(const Shape& shape);

}  // namespace ndmesh::schedule
