#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ndmesh/plan/problem.h"
#include "ndmesh/plan/profile/constants.h"

namespace ndmesh::plan {

/// Seconds that a rank waits for one kind of communication.
struct Exposed {
  std::string what;  ///< "tp/all_gather", "dp_shard+cp/reduce_scatter", "pp/send": axes / collective
  double seconds = 0;
};

/// One step of the slowest pipeline rank; the parts sum to `seconds`.
struct StepTime {
  double seconds = 0;
  double compute = 0;
  double exposed = 0;  ///< sum of `by_collective`
  double bubble = 0;
  double optimizer = 0;
  double input = 0;
  double checkpoint = 0;
  double other = 0;
  std::vector<Exposed> by_collective;
  double bubble_share = 0;  ///< of the pipeline part of the step

  double tokens_per_second_per_device = 0;
  double mfu = 0;  ///< by flops_per_token over the device's dense peak; 0 when that is unknown
};

/// Model FLOPs of `tokens_per_second` on one device over the device's dense peak in the job's number format
/// (of 8-bit products where the job has them); 0 when that peak is not known.
double model_flops_utilization(const Problem& problem, double tokens_per_second);

/// Times of candidates for one problem; threads and lifetime as MemoryModel. RequestError from the
/// constructor when the device's figures that are needed are unknown.
class TimeModel {
 public:
  TimeModel(const Problem& problem, const Constants& constants);
  ~TimeModel();
  TimeModel(TimeModel&&) noexcept;

  /// By simulating the schedule with the costs of every stage.
  StepTime step(const Candidate& candidate) const;
  /// Never above step().seconds (property test); closed form.
  double least_seconds(const Candidate& candidate) const;
  /// The same without waiting for other ranks of tp, cp and ep: never above least_seconds, alike for every
  /// order and for reshard or not, never more with a larger zero, with dp_shard in the place of dp_replicate,
  /// or (unless activations are offloaded, of which recomputation keeps less) without recomputation.
  double least_compute_seconds(const Candidate& candidate) const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace ndmesh::plan
