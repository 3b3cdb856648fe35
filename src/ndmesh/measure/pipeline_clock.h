#pragma once

#include <cstdint>
#include <vector>

#include "ndmesh/schedule/schedule.h"

namespace ndmesh::measure {

/// What a pipeline's ranks waited for each other, as a share of the step's forward and backward: 1 - mean busy time of a
/// rank / time until the last is done.
struct Bubble {
  double measured = 0;
  double predicted =
      0;  ///< by simulating the schedule with the measured mean seconds of each stage's actions
};

/// Books the actions of one rank's schedule. Used by that rank's thread.
class PipelineClock {
 public:
  /// A step's schedule begins.
  void begin(std::int64_t chunks);
  /// An action is done; seconds on the steady clock, without what it waited for first.
  void add(const schedule::Action& action, double begin, double end);

  /// The step so far, `figures_of(chunks)` numbers: what ranks tell each other.
  std::vector<double> figures() const;
  static std::int64_t figures_of(std::int64_t chunks) { return 2 + 3 * chunks; }

 private:
  struct Passes {
    double seconds = 0;
    std::int64_t count = 0;
  };
  double begun_ = 0;
  double ended_ = 0;
  double busy_ = 0;
  std::vector<Passes> passes_;  ///< by chunk, then forward, backward or input_grad, weight_grad
};

/// Of the figures of every rank of the world, by rank; `pipeline_rank` of each.
Bubble bubble_of(const schedule::Schedule& schedule, const std::vector<std::vector<double>>& figures,
                 const std::vector<std::int64_t>& pipeline_rank);

}  // namespace ndmesh::measure
