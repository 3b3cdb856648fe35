#include "ndmesh/plan/accuracy.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

namespace ndmesh::plan {
namespace {

/// Means of relative errors, in percent.
class Errors {
 public:
  void add(double predicted, double measured) {
    const double error = 100 * (predicted / measured - 1);
    sum_ += error;
    absolute_ += std::abs(error);
    ++count_;
  }
  std::optional<double> mape() const { return mean(absolute_); }
  std::optional<double> bias() const { return mean(sum_); }

 private:
  std::optional<double> mean(double sum) const {
    if (count_ == 0) return std::nullopt;
    return sum / static_cast<double>(count_);
  }
  double sum_ = 0;
  double absolute_ = 0;
  std::int64_t count_ = 0;
};

/// Scored rows that differ only in what a planner chooses.
struct RankingGroup {
  std::vector<double> measured;
  std::vector<double> calibrated;
  std::vector<double> uncalibrated;

  void add(const Measurement& row, const Prediction& prediction) {
    measured.push_back(*row.seconds);
    calibrated.push_back(prediction.calibrated);
    uncalibrated.push_back(prediction.uncalibrated);
  }
};

bool is_scored(const Measurement& row, const Prediction& prediction) {
  return row.seconds && !prediction.calibrates;
}

constexpr std::size_t least_ranked = 3;

void add_memory(const Measurement& row, const Prediction& prediction, Errors& errors, Accuracy& accuracy) {
  if (!row.memory || !prediction.bytes) return;
  ++accuracy.memory_rows;
  errors.add(static_cast<double>(*prediction.bytes), static_cast<double>(row.memory->bytes));
}

void add_verdict(const Measurement& row, const Prediction& prediction, Accuracy& accuracy) {
  if (!row.fits || !prediction.fits) return;
  ++accuracy.verdict_rows;
  accuracy.verdict_right += *row.fits == *prediction.fits;
  accuracy.wrongly_fits += !*row.fits && *prediction.fits;
  accuracy.wrongly_not += *row.fits && !*prediction.fits;
}

/// The mean over groups of what `figure` says of measured and predicted times, by rows.
template <typename Figure>
std::optional<WeightedMean> over_groups(const std::map<std::string, RankingGroup>& groups,
                                        std::vector<double> RankingGroup::*predicted, const Figure& figure) {
  std::vector<double> values;
  std::vector<double> weights;
  for (const auto& [key, group] : groups) {
    if (group.measured.size() < least_ranked) continue;
    const std::optional<double> value = figure(group.*predicted, group.measured);
    if (!value) continue;
    values.push_back(*value);
    weights.push_back(static_cast<double>(group.measured.size()));
  }
  if (values.empty()) return std::nullopt;
  return weighted_mean(values, weights);
}

std::optional<double> regret_percent(const std::vector<double>& predicted,
                                     const std::vector<double>& measured) {
  return 100 * regret(predicted, measured);
}

void set_ranking(const std::map<std::string, RankingGroup>& groups, Accuracy& accuracy) {
  for (const auto& [key, group] : groups) {
    if (group.measured.size() < least_ranked) continue;
    ++accuracy.ranking_groups;
    accuracy.ranked_rows += static_cast<std::int64_t>(group.measured.size());
  }
  accuracy.tau = over_groups(groups, &RankingGroup::calibrated, kendall_tau_b);
  accuracy.tau_uncalibrated = over_groups(groups, &RankingGroup::uncalibrated, kendall_tau_b);
  accuracy.regret = over_groups(groups, &RankingGroup::calibrated, regret_percent);
  accuracy.regret_uncalibrated = over_groups(groups, &RankingGroup::uncalibrated, regret_percent);
}

}  // namespace

Accuracy accuracy_of(const std::string& name, const std::vector<Measurement>& list,
                     const std::vector<Prediction>& predictions, const std::vector<std::size_t>& rows) {
  Accuracy accuracy;
  accuracy.name = name;
  Errors memory, uncalibrated, calibrated;
  std::map<std::string, RankingGroup> groups;
  accuracy.rows = static_cast<std::int64_t>(rows.size());
  for (const std::size_t i : rows) {
    const Measurement& row = list[i];
    const Prediction& prediction = predictions[i];
    add_memory(row, prediction, memory, accuracy);
    add_verdict(row, prediction, accuracy);
    accuracy.calibration_rows += row.seconds && prediction.calibrates;
    if (!is_scored(row, prediction)) continue;
    ++accuracy.time_rows;
    uncalibrated.add(prediction.uncalibrated, *row.seconds);
    calibrated.add(prediction.calibrated, *row.seconds);
    groups[row.ranking].add(row, prediction);
  }
  accuracy.memory_mape = memory.mape();
  accuracy.memory_bias = memory.bias();
  accuracy.mape_uncalibrated = uncalibrated.mape();
  accuracy.mape_calibrated = calibrated.mape();
  accuracy.bias_uncalibrated = uncalibrated.bias();
  accuracy.bias_calibrated = calibrated.bias();
  set_ranking(groups, accuracy);
  return accuracy;
}

std::vector<Accuracy> accuracy_by(const std::vector<Measurement>& list,
                                  const std::vector<Prediction>& predictions,
                                  const std::function<std::string(const Measurement&)>& key) {
  std::vector<Accuracy> result;
  for (const RowsOf& part : rows_by(list, key)) {
    result.push_back(accuracy_of(part.key, list, predictions, part.rows));
  }
  return result;
}

std::vector<RankedGroup> ranked_groups(const std::vector<Measurement>& list,
                                       const std::vector<Prediction>& predictions) {
  std::vector<RankedGroup> result;
  for (RowsOf& group : rows_by(list, [](const Measurement& row) { return row.ranking; })) {
    std::erase_if(group.rows, [&](std::size_t i) { return !is_scored(list[i], predictions[i]); });
    if (group.rows.size() < least_ranked) continue;
    RankingGroup times;
    for (const std::size_t i : group.rows) times.add(list[i], predictions[i]);
    const auto row_with_least = [&](const std::vector<double>& seconds) {
      return list[group.rows[static_cast<std::size_t>(std::min_element(seconds.begin(), seconds.end()) -
                                                      seconds.begin())]]
          .id;
    };
    result.push_back({group.key, group.rows.size(), kendall_tau_b(times.calibrated, times.measured),
                      100 * regret(times.calibrated, times.measured), row_with_least(times.calibrated),
                      row_with_least(times.measured)});
  }
  std::stable_sort(result.begin(), result.end(),
                   [](const RankedGroup& a, const RankedGroup& b) { return a.regret > b.regret; });
  return result;
}

Accuracy overall_accuracy(const std::vector<Measurement>& list, const std::vector<Prediction>& predictions) {
  std::vector<std::size_t> rows(list.size());
  std::iota(rows.begin(), rows.end(), std::size_t{0});
  return accuracy_of("all", list, predictions, rows);
}

}  // namespace ndmesh::plan
