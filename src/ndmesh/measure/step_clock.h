#pragma once

#include <array>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "ndmesh/comm/world.h"

namespace ndmesh::measure {

/// Where a second of a step goes; each belongs to exactly one.
enum class Part { compute, exposed, bubble, optimizer, input, checkpoint, other };
inline constexpr std::size_t part_count = 7;
inline constexpr std::array<std::string_view, part_count> part_names = {
    "compute", "exposed", "bubble", "optimizer", "input", "checkpoint", "other"};

/// Time that a rank waited for communication that nothing hid.
struct Exposed {
  double skew = 0;      ///< until the last peer had arrived
  double transfer = 0;  ///< while bytes moved
};

/// One step of one rank, in seconds. The parts sum to `total`.
struct StepTimes {
  std::array<double, part_count> parts{};
  std::map<std::string, Exposed> exposed;  ///< by "axis/collective", as in "dp_shard/all_gather"
  double total = 0;

  double& operator[](Part part) { return parts[static_cast<std::size_t>(part)]; }
  double operator[](Part part) const { return parts[static_cast<std::size_t>(part)]; }
};

/// Books the time of one rank's steps. Used by that rank's thread.
class StepClock {
 public:
  using PartObserver = std::function<void(Part part, double begin, double end)>;

  /// Told of every stretch of time as it ends, with the exposed time within it; an empty one is told nothing.
  void observe(PartObserver observer) { observer_ = std::move(observer); }
  /// A step begins, in part `other`.
  void begin();
  /// From now on time belongs to `part`.
  void enter(Part part);
  /// A collective finished within the current part: what was waited for it counts as exposed instead; and as bubble where
  /// one stage of a pipeline waited for another to send, or to read what it had sent.
  void add(const comm::CollectiveRecord& record);
  StepTimes end();

 private:
  void close_part();

  PartObserver observer_;
  StepTimes times_;
  Part part_ = Part::other;
  double begun_ = 0;
  double part_begun_ = 0;
  double exposed_in_part_ = 0;
  double bubble_in_part_ = 0;
};

}  // namespace ndmesh::measure
