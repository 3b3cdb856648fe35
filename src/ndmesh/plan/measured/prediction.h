#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ndmesh/plan/measured/measurements.h"
#include "ndmesh/plan/profile/constants.h"

namespace ndmesh::plan {

/// What the planner says of one measurement. A part is there when it was measured.
struct Prediction {
  std::optional<std::int64_t> bytes;  ///< of the measured kind, on the measured rank
  std::optional<bool> fits;
  std::int64_t needed = 0;  ///< bytes of the fullest device; 0 when no verdict is asked
  double uncalibrated = 0;  ///< seconds under the committed constants; 0 when no time was measured
  double calibrated = 0;    ///< seconds under constants fitted to rows of the same cluster
  bool calibrates = false;  ///< is one of these rows: not scored for time
};

/// Bytes and verdict. RequestError when the memory model refuses the problem.
void predict_memory(const Measurement& measurement, Prediction& prediction);

/// Seconds of a step. RequestError when the time model refuses the problem.
double predict_seconds(const Measurement& measurement, const Constants& constants);

/// Predictions of every measurement, in order. What a model refuses is taken from the measurement and added
/// to `measurements.left_out`. Uses all cores.
std::vector<Prediction> predict(Measurements& measurements);

}  // namespace ndmesh::plan
