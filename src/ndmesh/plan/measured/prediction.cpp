#include "ndmesh/plan/measured/prediction.h"

#include <algorithm>

#include "ndmesh/base/error.h"
#include "ndmesh/base/text.h"
#include "ndmesh/plan/measured/calibration.h"
#include "ndmesh/plan/memory/training_memory.h"
#include "ndmesh/plan/parallel.h"
#include "ndmesh/plan/time/step_time.h"

namespace ndmesh::plan {
namespace {

using Kind = MeasuredMemory::Kind;
using Scope = MeasuredMemory::Scope;

std::int64_t bytes_of(const StageBudget& budget, Kind kind) {
  switch (kind) {
    case Kind::allocated:
      return budget.at_peak.total();
    case Kind::reserved:
      return budget.reserved - budget.outside;
    case Kind::device:
      return budget.reserved;
  }
  return 0;
}

std::int64_t bytes_of(const std::vector<StageBudget>& budgets, const MeasuredMemory& memory) {
  if (memory.scope == Scope::first) return bytes_of(budgets.front(), memory.kind);
  if (memory.scope == Scope::last) return bytes_of(budgets.back(), memory.kind);
  std::int64_t most = 0;
  for (const StageBudget& budget : budgets) most = std::max(most, bytes_of(budget, memory.kind));
  return most;
}

/// What was refused, by part; empty when nothing was.
struct Refusal {
  std::string memory;
  std::string time;
};

Prediction predict_row(const Measurement& row, Refusal& refusal) {
  Prediction prediction;
  try {
    predict_memory(row, prediction);
  } catch (const RequestError& error) {
    refusal.memory = join(error.problems(), "; ");
  }
  if (!row.seconds) return prediction;
  try {
    prediction.uncalibrated = prediction.calibrated = predict_seconds(row, constants_for(row.problem));
  } catch (const RequestError& error) {
    refusal.time = join(error.problems(), "; ");
  }
  return prediction;
}

void leave_out(Measurements& measurements, std::size_t index, const Refusal& refusal) {
  Measurement& row = measurements.list[index];
  if (!refusal.memory.empty()) {
    row.memory.reset();
    row.fits.reset();
    measurements.left_out.push_back({row.id, "memory", refusal.memory});
  }
  if (!refusal.time.empty()) {
    row.seconds.reset();
    measurements.left_out.push_back({row.id, "time", refusal.time});
  }
}

void calibrate_cluster(const std::vector<Measurement>& list, const std::vector<std::size_t>& rows,
                       std::vector<Prediction>& predictions) {
  const std::vector<std::size_t> chosen = calibration_rows(list, rows);
  if (chosen.empty()) return;
  const Constants fitted = fit(observations(list, chosen), constants_for(list[chosen.front()].problem));
  for (const std::size_t row : chosen) predictions[row].calibrates = true;
  for (const std::size_t row : rows) predictions[row].calibrated = predict_seconds(list[row], fitted);
}

}  // namespace

void predict_memory(const Measurement& measurement, Prediction& prediction) {
  if (!measurement.memory && !measurement.fits) return;
  const std::vector<StageBudget> budgets = MemoryModel(measurement.problem).budgets(measurement.candidate);
  if (measurement.memory) prediction.bytes = bytes_of(budgets, *measurement.memory);
  if (!measurement.fits) return;
  for (const StageBudget& budget : budgets) prediction.needed = std::max(prediction.needed, budget.reserved);
  prediction.fits = prediction.needed <= allowed_bytes(measurement.problem);
}

double predict_seconds(const Measurement& measurement, const Constants& constants) {
  return TimeModel(measurement.problem, constants).step(measurement.candidate).seconds;
}

std::vector<Prediction> predict(Measurements& measurements) {
  std::vector<Prediction> predictions(measurements.list.size());
  std::vector<Refusal> refusals(measurements.list.size());
  parallel_for(predictions.size(), [&](std::size_t, std::size_t i) {
    predictions[i] = predict_row(measurements.list[i], refusals[i]);
  });
  for (std::size_t i = 0; i < refusals.size(); ++i) leave_out(measurements, i, refusals[i]);
  const std::vector<RowsOf> clusters = timed_clusters(measurements.list);
  parallel_for(clusters.size(), [&](std::size_t, std::size_t i) {
    calibrate_cluster(measurements.list, clusters[i].rows, predictions);
  });
  return predictions;
}

}  // namespace ndmesh::plan
