#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "ndmesh/parallel/trainable.h"

namespace ndmesh::train {

/// Where and how moments are kept.
struct StateOptions {
  bool bfloat16 = false;  ///< in bfloat16; updates are computed in the dtype of the values all the same
  bool on_host = false;   ///< in host memory, where the update is then computed
};

/// Part of one parameter as an element-wise rule updates it: tensors of one shape, dtype and place.
struct StatePiece {
  const parallel::Trainable& parameter;
  at::Tensor value;  ///< undefined where the rule changes gradients
  at::Tensor gradient;
  std::vector<at::Tensor> moments;
};

/// The moments of what this rank owns (MemoryCategory::optimizer), zero at first, and the walk over them. Parameters of
/// which it owns nothing have none.
class OptimizerState {
 public:
  /// Elements of a piece where something must be converted or brought to the host first: bounds what that takes. A
  /// multiple of every vector width, so that rounding does not depend on it.
  static constexpr std::int64_t piece_elements = std::int64_t{1} << 20;

  /// What the rule changes besides moments.
  enum class Changes { value, gradient };

  /// Keeps references to the tensors of `trainables`.
  OptimizerState(const std::vector<parallel::Trainable>& trainables, std::size_t moments,
                 const StateOptions& options);

  /// Calls `rule` with all of each parameter in turn: whole where everything lies ready, by pieces where not. A piece is
  /// on the host where its moments or its value live there, and what changed is brought back.
  void for_each_piece(Changes changes, const std::function<void(const StatePiece&)>& rule);

 private:
  struct Parameter {
    parallel::Trainable trainable;
    std::vector<at::Tensor> moments;
  };
  /// Elements `start` to `start` + `count` of a parameter.
  struct Range {
    std::int64_t start = 0;
    std::int64_t count = 0;
  };

  bool is_on_host(const Parameter& parameter) const;
  StatePiece bring(const Parameter& parameter, const Range& range, Changes changes) const;
  void put_back(const Parameter& parameter, const Range& range, const StatePiece& piece,
                Changes changes) const;

  StateOptions options_;
  std::vector<Parameter> parameters_;
};

}  // namespace ndmesh::train
