#include "ndmesh/plan/measured/calibration.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>

#include "ndmesh/base/error.h"
#include "ndmesh/base/text.h"
#include "ndmesh/plan/measured/prediction.h"

namespace ndmesh::plan {
namespace {

/// Of every two timed rows of a cluster one may be fitted to; the others are scored. One alone is no
/// calibration.
constexpr std::size_t rows_for_each_fitted = 2;
constexpr std::size_t least_fitted = 2;

constexpr std::size_t feature_count = 16;
/// What tells runs apart, in doublings where it is a size. A yes or no counts as much as two doublings.
using Features = std::array<double, feature_count>;

Features features_of(const Measurement& row) {
  const Problem& problem = row.problem;
  const Candidate& candidate = row.candidate;
  const auto size = [](std::int64_t value) { return std::log2(static_cast<double>(value)); };
  const auto is = [](bool value) { return value ? 2.0 : 0.0; };
  const mesh::MeshSizes& mesh = candidate.mesh;
  return {size(mesh.tp),
          size(mesh.cp),
          size(mesh.batch_ranks()),
          size(mesh.pp),
          size(mesh.ep),
          size(candidate.chunks),
          size(candidate.micro),
          size(micro_batches(problem, candidate)),
          size(problem.seq_len),
          size(problem.model.hidden),
          size(problem.model.layers),
          is(candidate.recompute.policy != job::Recompute::Policy::none),
          is(problem.precision.fp8_products),
          is(candidate.zero > 1),
          is(candidate.sequence_parallel),
          is(candidate.offload != job::Offload::none)};
}

double distance(const Features& a, const Features& b) {
  double sum = 0;
  for (std::size_t i = 0; i < feature_count; ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum);
}

/// Chooses `wanted` of the points one by one, each time the one that brings all points nearest to a chosen
/// one: greedy k-medoids.
std::vector<std::size_t> medoids(const std::vector<Features>& points, std::size_t wanted) {
  std::vector<double> apart(points.size(), std::numeric_limits<double>::max());  // from the nearest chosen
  std::vector<std::size_t> chosen;
  while (chosen.size() < wanted) {
    std::size_t best = points.size();
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t candidate = 0; candidate < points.size(); ++candidate) {
      if (std::find(chosen.begin(), chosen.end(), candidate) != chosen.end()) continue;
      double sum = 0;
      for (std::size_t i = 0; i < points.size(); ++i) {
        sum += std::min(apart[i], distance(points[i], points[candidate]));
      }
      if (sum >= least) continue;
      least = sum;
      best = candidate;
    }
    chosen.push_back(best);
    for (std::size_t i = 0; i < points.size(); ++i) {
      apart[i] = std::min(apart[i], distance(points[i], points[best]));
    }
  }
  return chosen;
}

/// Evenly spaced rows of a cluster too large to compare each with each.
std::vector<std::size_t> thinned(const std::vector<std::size_t>& rows) {
  constexpr std::size_t most = 1000;
  if (rows.size() <= most) return rows;
  std::vector<std::size_t> result;
  for (std::size_t i = 0; i < most; ++i) result.push_back(rows[i * rows.size() / most]);
  return result;
}

double mean_error(const std::vector<Measurement>& list, const std::vector<std::size_t>& rows,
                  const Constants& constants) {
  double sum = 0;
  for (const std::size_t row : rows) {
    sum += std::abs(predict_seconds(list[row], constants) / *list[row].seconds - 1);
  }
  return rows.empty() ? 0 : sum / static_cast<double>(rows.size());
}

/// Takes the time from rows that the model refuses, so that a fit meets none of them.
void check_times(Measurements& measurements) {
  for (Measurement& row : measurements.list) {
    if (!row.seconds) continue;
    try {
      predict_seconds(row, constants_for(row.problem));
    } catch (const RequestError& error) {
      row.seconds.reset();
      measurements.left_out.push_back({row.id, "time", join(error.problems(), "; ")});
    }
  }
}

}  // namespace

std::vector<std::size_t> calibration_rows(const std::vector<Measurement>& list,
                                          const std::vector<std::size_t>& rows) {
  const std::size_t wanted = std::min(most_calibration_rows, rows.size() / rows_for_each_fitted);
  if (wanted < least_fitted) return {};
  const std::vector<std::size_t> compared = thinned(rows);
  std::vector<Features> features;
  for (const std::size_t row : compared) features.push_back(features_of(list[row]));
  std::vector<std::size_t> chosen;
  for (const std::size_t i : medoids(features, wanted)) chosen.push_back(compared[i]);
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

std::vector<RowsOf> timed_clusters(const std::vector<Measurement>& list) {
  std::vector<RowsOf> clusters = rows_by(list, [](const Measurement& row) { return row.cluster; });
  for (RowsOf& cluster : clusters) {
    std::erase_if(cluster.rows, [&](std::size_t row) { return !list[row].seconds; });
  }
  std::erase_if(clusters, [](const RowsOf& cluster) { return cluster.rows.empty(); });
  return clusters;
}

std::vector<Observation> observations(const std::vector<Measurement>& list,
                                      const std::vector<std::size_t>& rows) {
  std::vector<Observation> result;
  for (const std::size_t row : rows) {
    result.push_back({list[row].problem, list[row].candidate, *list[row].seconds});
  }
  return result;
}

std::vector<Calibration> calibrate(Measurements& measurements) {
  check_times(measurements);
  const std::vector<Measurement>& list = measurements.list;
  std::map<std::pair<std::string, std::string>, std::vector<std::size_t>> chosen;
  for (const RowsOf& cluster : timed_clusters(list)) {
    const Problem& problem = list[cluster.rows.front()].problem;
    std::vector<std::size_t>& rows = chosen[{problem.cluster.device.architecture, problem.profile.name}];
    const std::vector<std::size_t> more = calibration_rows(list, cluster.rows);
    rows.insert(rows.end(), more.begin(), more.end());
  }
  std::vector<Calibration> result;
  for (const auto& [key, rows] : chosen) {
    if (rows.empty()) continue;
    const Problem& problem = list[rows.front()].problem;
    Calibration calibration{key.first, key.second, rows.size(), constants_for(problem), {}};
    calibration.after = fit(observations(list, rows), calibration.before);
    calibration.error_before = mean_error(list, rows, calibration.before);
    calibration.error_after = mean_error(list, rows, calibration.after);
    result.push_back(std::move(calibration));
  }
  return result;
}

}  // namespace ndmesh::plan
