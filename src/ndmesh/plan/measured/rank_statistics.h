#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace ndmesh::plan {

/// Kendall's tau-b of two lists of equal length, -1 to 1: concordant less discordant pairs over the geometric
/// mean of the pairs that are not tied in the one and in the other list. Nothing when either list has no two
/// different values. O(n log n), after Knight (1966).
std::optional<double> kendall_tau_b(const std::vector<double>& x, const std::vector<double>& y);

/// What it costs to trust a prediction: the measured time of the row with the least predicted time over the
/// least measured time, less 1. Rows that are predicted alike count by their mean. `measured` is positive,
/// not empty.
double regret(const std::vector<double>& predicted, const std::vector<double>& measured);

/// A mean, and between which values it would lie in nine of ten repetitions.
struct WeightedMean {
  double value = 0;
  double low = 0;
  double high = 0;
};

/// The mean of `values` (not empty) by `weights` (positive), with the percentile interval of 1000 bootstrap
/// samples of the values (Efron 1979), drawn by a fixed seed.
WeightedMean weighted_mean(const std::vector<double>& values, const std::vector<double>& weights);

}  // namespace ndmesh::plan
