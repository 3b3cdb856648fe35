#include "ndmesh/plan/measured/accuracy.h"

#include <algorithm>
#include <cmath>
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

/// The mean over groups of what `figure` says of predicted and measured times, by rows.
template <typename Figure>
std::optional<WeightedMean> over_groups(const std::vector<Ranking>& rankings,
                                        std::vector<double> Ranking::*predicted, const Figure& figure) {
  std::vector<double> values;
  std::vector<double> weights;
  for (const Ranking& ranking : rankings) {
    const std::optional<double> value = figure(ranking.*predicted, ranking.measured);
    if (!value) continue;
    values.push_back(*value);
    weights.push_back(static_cast<double>(ranking.rows));
  }
  if (values.empty()) return std::nullopt;
  return weighted_mean(values, weights);
}

std::optional<double> regret_percent(const std::vector<double>& predicted,
                                     const std::vector<double>& measured) {
  return 100 * regret(predicted, measured);
}

void set_ranking(const std::vector<Ranking>& rankings, Accuracy& accuracy) {
  accuracy.ranking_groups = static_cast<std::int64_t>(rankings.size());
  for (const Ranking& ranking : rankings) accuracy.ranked_rows += static_cast<std::int64_t>(ranking.rows);
  accuracy.tau = over_groups(rankings, &Ranking::calibrated, kendall_tau_b);
  accuracy.tau_uncalibrated = over_groups(rankings, &Ranking::uncalibrated, kendall_tau_b);
  accuracy.regret = over_groups(rankings, &Ranking::calibrated, regret_percent);
  accuracy.regret_uncalibrated = over_groups(rankings, &Ranking::uncalibrated, regret_percent);
}

std::vector<std::size_t> all_rows(const std::vector<Measurement>& list) {
  std::vector<std::size_t> rows(list.size());
  std::iota(rows.begin(), rows.end(), std::size_t{0});
  return rows;
}

const std::string& id_with_least(const Ranking& ranking, const std::vector<double>& seconds) {
  return ranking
      .ids[static_cast<std::size_t>(std::min_element(seconds.begin(), seconds.end()) - seconds.begin())];
}

}  // namespace

Accuracy accuracy_of(const std::string& name, const std::vector<Measurement>& list,
                     const std::vector<Prediction>& predictions, const std::vector<std::size_t>& rows) {
  Accuracy accuracy;
  accuracy.name = name;
  Errors memory, uncalibrated, calibrated;
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
  }
  accuracy.memory_mape = memory.mape();
  accuracy.memory_bias = memory.bias();
  accuracy.mape_uncalibrated = uncalibrated.mape();
  accuracy.mape_calibrated = calibrated.mape();
  accuracy.bias_uncalibrated = uncalibrated.bias();
  accuracy.bias_calibrated = calibrated.bias();
  set_ranking(rankings_of(list, predictions, rows), accuracy);
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
  for (const Ranking& ranking : rankings_of(list, predictions, all_rows(list))) {
    result.push_back({ranking.key, ranking.rows, kendall_tau_b(ranking.calibrated, ranking.measured),
                      100 * regret(ranking.calibrated, ranking.measured),
                      id_with_least(ranking, ranking.calibrated), id_with_least(ranking, ranking.measured)});
  }
  std::stable_sort(result.begin(), result.end(),
                   [](const RankedGroup& a, const RankedGroup& b) { return a.regret > b.regret; });
  return result;
}

Accuracy overall_accuracy(const std::vector<Measurement>& list, const std::vector<Prediction>& predictions) {
  return accuracy_of("all", list, predictions, all_rows(list));
}

}  // namespace ndmesh::plan
