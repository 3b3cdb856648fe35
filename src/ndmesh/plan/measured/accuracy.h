#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ndmesh/plan/measured/prediction.h"
#include "ndmesh/plan/measured/rank_statistics.h"
#include "ndmesh/plan/measured/ranking.h"

namespace ndmesh::plan {

/// How far predictions are from measurements, over some rows. A figure is there when a row counts to it.
/// Errors are in percent of the measured value.
struct Accuracy {
  std::string name;
  std::int64_t rows = 0;  ///< that are judged at all

  std::int64_t memory_rows = 0;
  std::optional<double> memory_mape;  ///< mean absolute error
  std::optional<double> memory_bias;  ///< mean error, above 0 when too much is predicted

  std::int64_t verdict_rows = 0;  ///< ran, or ended out of memory, with what decides it stated
  std::int64_t verdict_right = 0;
  std::int64_t wrongly_fits = 0;  ///< said to fit, and ended out of memory
  std::int64_t wrongly_not = 0;   ///< said not to fit, and ran

  std::int64_t time_rows = 0;  ///< those that constants were fitted to are not scored
  std::int64_t calibration_rows = 0;
  std::optional<double> mape_uncalibrated;
  std::optional<double> mape_calibrated;
  std::optional<double> bias_uncalibrated;
  std::optional<double> bias_calibrated;

  /// Within ranking groups (rankings_of). Means over groups, weighed by rows, with the interval over groups.
  std::int64_t ranking_groups = 0;
  std::int64_t ranked_rows = 0;
  std::optional<WeightedMean> tau;     ///< Kendall's tau-b of calibrated predictions
  std::optional<WeightedMean> regret;  ///< of the pick by calibrated predictions, percent
  std::optional<WeightedMean> tau_uncalibrated;
  std::optional<WeightedMean> regret_uncalibrated;
};

/// The accuracy over `rows`, indices into `list` and, in the same order, `predictions`.
Accuracy accuracy_of(const std::string& name, const std::vector<Measurement>& list,
                     const std::vector<Prediction>& predictions, const std::vector<std::size_t>& rows);

/// One Accuracy for each value of `key`, in order of first appearance.
std::vector<Accuracy> accuracy_by(const std::vector<Measurement>& list,
                                  const std::vector<Prediction>& predictions,
                                  const std::function<std::string(const Measurement&)>& key);

/// Of all rows.
Accuracy overall_accuracy(const std::vector<Measurement>& list, const std::vector<Prediction>& predictions);

/// One ranking group under the calibrated predictions.
struct RankedGroup {
  std::string ranking;  ///< what its rows share
  std::size_t rows = 0;
  std::optional<double> tau;
  double regret = 0;   ///< percent
  std::string picked;  ///< layout with the least predicted time
  std::string best;    ///< layout with the least measured time
};

/// Every ranking group, the largest regret first.
std::vector<RankedGroup> ranked_groups(const std::vector<Measurement>& list,
                                       const std::vector<Prediction>& predictions);

}  // namespace ndmesh::plan
