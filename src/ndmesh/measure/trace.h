#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "ndmesh/measure/step_clock.h"

namespace ndmesh::measure {

/// What one rank did and when: the parts of its steps and its collectives. Used by that rank's thread.
class RankTrace {
 public:
  void add(Part part, double begin, double end);
  void add(const comm::CollectiveRecord& record);

 private:
  friend class Trace;
  struct Slice {
    Part part = Part::other;
    double begin = 0;
    double end = 0;
  };
  struct Collective {
    std::string name;  ///< axis/collective
    std::string label;
    std::int64_t bytes = 0;
    double started = 0, waited = 0, finished = 0, skew = 0, transfer = 0;
  };
  std::vector<Slice> slices_;
  std::vector<Collective> collectives_;
};

/// All ranks of a run, for chrome://tracing or Perfetto. A rank is a process of the trace, with two rows: `step` has the
/// parts, and in them what was waited for; `in flight` has each collective from its start until its bytes had arrived.
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
