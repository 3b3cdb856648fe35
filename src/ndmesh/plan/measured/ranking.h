#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "ndmesh/plan/measured/prediction.h"

namespace ndmesh::plan {

/// The layouts of one ranking group: rows of one cluster, model, number of devices, batch and sequence. Rows
/// that are the same to the planner (repeated measurements, other releases of the software) are one layout,
/// with their mean time.
struct Ranking {
  std::string key;       ///< Measurement::ranking
  std::size_t rows = 0;  ///< scored: 3 or more

  // By layout, of which there are 2 or more; seconds.
  std::vector<std::string> ids;  ///< of its first row
  std::vector<double> measured;
  std::vector<double> calibrated;
  std::vector<double> uncalibrated;
};

/// Whether the row counts for times: it has one, and no constant was fitted to it.
bool is_scored(const Measurement& row, const Prediction& prediction);

/// The ranking groups of `rows`, indices into `list` and `predictions`.
std::vector<Ranking> rankings_of(const std::vector<Measurement>& list,
                                 const std::vector<Prediction>& predictions,
                                 const std::vector<std::size_t>& rows);

}  // namespace ndmesh::plan
