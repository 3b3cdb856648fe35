#pragma once

#include <string>
#include <vector>

#include "ndmesh/plan/measured/measurements.h"
#include "ndmesh/plan/time/fit.h"

namespace ndmesh::plan {

/// Most rows of one cluster that its constants are fitted to.
inline constexpr std::size_t most_calibration_rows = 12;

/// Which of `rows` (indices into `list`, of one cluster, each with a time) the constants are fitted to, by a
/// fixed rule that never looks at a measured time: at most half of them and at most 12, none of fewer than
/// four; those that stand for the others best: each next one brings all rows nearest to a chosen one, in
/// mesh, batch, model, precision and recompute (greedy k-medoids). Ascending.
std::vector<std::size_t> calibration_rows(const std::vector<Measurement>& list,
                                          const std::vector<std::size_t>& rows);

/// The rows with a time, by cluster.
std::vector<RowsOf> timed_clusters(const std::vector<Measurement>& list);

/// The rows as the fit takes them.
std::vector<Observation> observations(const std::vector<Measurement>& list,
                                      const std::vector<std::size_t>& rows);

/// Constants of one architecture and runtime, before and after a fit.
struct Calibration {
  std::string architecture;
  std::string runtime;
  std::size_t rows = 0;
  Constants before;
  Constants after;
  double error_before = 0;  ///< mean absolute relative error of the rows' times, 0.1 is 10 %
  double error_after = 0;
};

/// Fits the constants of every architecture and runtime of `measurements`, to the calibration rows of each of
/// its clusters, so that no cluster decides alone. Rows that the time model refuses are moved to
/// `measurements.left_out`.
std::vector<Calibration> calibrate(Measurements& measurements);

}  // namespace ndmesh::plan
