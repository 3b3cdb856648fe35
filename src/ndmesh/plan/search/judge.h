#pragma once

#include <string>
#include <vector>

#include "ndmesh/plan/memory/training_memory.h"
#include "ndmesh/plan/time/step_time.h"

namespace ndmesh::plan {

/// The level of the network that the groups of an axis sit on.
struct AxisLevel {
  std::string axis;   ///< "tp", ..., "ep"
  std::string level;  ///< outermost that a group crosses
};

/// A judged candidate.
struct Plan {
  Candidate candidate;
  std::int64_t global_batch = 0;  ///< sequences of a step
  StageBudget worst;
  std::int64_t node_host_bytes = 0;  ///< host memory of the node that gives most
  std::vector<StageBudget> stages;   ///< of every pipeline rank; only in the plans of an answer
  std::vector<std::int64_t> layers;  ///< of every stage, in the order of the model; likewise
  std::string schedule_file;         ///< of a schedule that is a list; else empty
  bool fits = false;  ///< on the device with headroom left, and in host memory where that is known
  StepTime time;
  std::vector<AxisLevel> levels;     ///< of the axes of more than one rank
  std::vector<std::string> reasons;  ///< one a used axis: what it relieves here, in numbers
};

/// Host memory that the devices of a node take together, of the node that gives most. `stages` are the budgets
/// of `candidate`.
std::int64_t node_host_bytes(const cluster::Cluster& cluster, const Candidate& candidate,
                             const std::vector<StageBudget>& stages);

/// Micro-batches of a step on each batch rank.
std::int64_t micro_batches(const Plan& plan);

/// Where the groups of every used axis sit.
std::vector<AxisLevel> levels_of(const cluster::Cluster& cluster, const Candidate& candidate);

/// The order of plans: those that fit first, by step time, then by exposed communication; the others by the
/// memory that they need; at last by mesh, so that no two are equal.
bool is_better(const Plan& a, const Plan& b);

/// Judges candidates that have passed the rules, one by one. `problem` outlives it. Not shared between
/// threads.
class Judge {
 public:
  Judge(const Problem& problem, const Constants& constants);

  /// Without reasons.
  Plan judge(const Candidate& candidate) const { return plan(candidate, time_.step(candidate)); }
  /// The same for a candidate whose `time` is known.
  Plan plan(const Candidate& candidate, StepTime time) const;
  /// Whether the device has room for it with headroom, and the node for what its devices offload.
  bool fits(const Candidate& candidate) const;
  std::int64_t allowed() const { return allowed_; }
  const MemoryModel& memory() const { return memory_; }
  const TimeModel& time() const { return time_; }

 private:
  bool fits(const StageBudget& worst, std::int64_t node_host_bytes) const;
  std::int64_t host_bytes(const Candidate& candidate) const;

  const Problem& problem_;
  std::int64_t allowed_;
  MemoryModel memory_;
  TimeModel time_;
};

}  // namespace ndmesh::plan
