#pragma once

#include "ndmesh/schedule/schedule.h"

namespace ndmesh::schedule {

/// The problems of `shape` that concern no order: sizes and chunks.
std::vector<std::string> size_problems(const Shape& shape);

/// Forwards of `rank` before the first backward of gpipe, 1f1b and interleaved, without the one that the steady
/// part begins with: all; p - 1 - rank; (chunks - 1) x round + 2 (p - 1 - rank).
std::int64_t warm_up(const Shape& shape, std::int64_t rank);

/// The compute actions of `rank` in order: forward with backward, or with input_grad and weight_grad. `shape`
/// has no problems.
std::vector<Action> compute_order(const Shape& shape, std::int64_t rank);

/// `actions` of every rank with the sends and receives that they need between ranks. A send follows its
/// action; a receive stands before the action that needs it, after all that the same sender sent earlier.
std::vector<std::vector<Action>> with_messages(const Shape& shape,
                                               const std::vector<std::vector<Action>>& actions);

}  // namespace ndmesh::schedule
