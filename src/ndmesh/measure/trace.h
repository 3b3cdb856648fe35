#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "ndmesh/measure/step_clock.h"
#include "ndmesh/schedule/schedule.h"

namespace ndmesh::measure {

/// What one rank did and when: the parts of its steps, the actions of its schedule and its collectives. Used by that
/// rank's thread.
class RankTrace {
 public:
  void add(Part part, double begin, double end);
  void add(const comm::CollectiveRecord& record);
  /// Of the schedule; messages are not shown: they are among the collectives.
  void add(const schedule::Action& action, double begin, double end);

 private:
  friend class Trace;
  struct Slice {
    Part part = Part::other;
    double begin = 0;
    double end = 0;
  };
  struct Action {
    schedule::Action action;
    double begin = 0;
    double end = 0;
  };
  struct Collective {
    std::string name;  ///< axis/collective
    std::string label;
    std::int64_t bytes = 0;
    double started = 0, waited = 0, finished = 0, skew = 0, transfer = 0;
  };
  double begin() const;
  void write(std::size_t rank, double origin, nlohmann::ordered_json& events) const;

  std::vector<Slice> slices_;
  std::vector<Action> actions_;
  std::vector<Collective> collectives_;
};

/// All ranks of a run, for chrome://tracing or Perfetto. A rank is a process of the trace, with three rows: `step` has the
/// parts, and in them what was waited for; `schedule` has the actions that the rank performs, with chunk and micro-batch;
/// `in flight` has each collective from its start until its bytes had arrived.
class Trace {
 public:
  explicit Trace(std::int64_t world) : ranks_(static_cast<std::size_t>(world)) {}

  /// Ranks may ask, and write to theirs, at the same time.
  RankTrace& of(std::int64_t rank) { return ranks_[static_cast<std::size_t>(rank)]; }

  /// Trace Event Format, JSON; times in microseconds from the first event. When no rank writes any more. RunError when
  /// the file cannot be written.
  void write(const std::filesystem::path& file) const;

 private:
  std::vector<RankTrace> ranks_;
};

}  // namespace ndmesh::measure
