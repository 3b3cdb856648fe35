#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ndmesh/plan/measured/accuracy.h"

namespace ndmesh::plan {

/// A figure that must hold: "memory_mape=1", or of one group "torchtitan:memory_mape=8".
struct Limit {
  std::string group;   ///< empty: all rows
  std::string figure;  ///< one of limit_figures()
  double value = 0;
};

/// memory_mape, mape_uncalibrated, mape_calibrated, regret: percent, at most; verdict: percent right, at
/// least; tau: at least.
std::vector<std::string> limit_figures();

/// RequestError for an unknown figure (with the nearest) and for what is no number.
Limit parse_limit(std::string_view text);

/// Every limit that does not hold, in words; also one that nothing was measured for. RequestError for a group
/// that is not there.
std::vector<std::string> broken_limits(const std::vector<Limit>& limits, const Accuracy& all,
                                       const std::vector<Accuracy>& groups);

}  // namespace ndmesh::plan
