#include "ndmesh/plan/measured/validation.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "ndmesh/plan/measured/calibration.h"
#include "ndmesh/plan/measured/limits.h"
#include "ndmesh/plan/time/step_time.h"
#include "plan/measured_rows.h"

namespace ndmesh::plan {
namespace {

Measurements data(const std::string& name) {
  return read_measurements(std::string(NDMESH_TEST_DATA) + "/measurements/" + name);
}

TEST(Validation, TimesThatThePlannerMadeAreMetExactly) {
  Measurements made = data("vtrain.csv");
  for (Measurement& row : made.list) {
    row.seconds = predict_seconds(row, constants_for(row.problem.cluster, row.problem.profile.name));
  }
  const Validation validation = validate(std::move(made), "made.csv");
  EXPECT_EQ(validation.all.time_rows, 28);  // 12 of 40 are for the fit
  EXPECT_EQ(validation.all.calibration_rows, 12);
  EXPECT_NEAR(*validation.all.mape_uncalibrated, 0, 1e-9);
  EXPECT_NEAR(*validation.all.mape_calibrated, 0, 1e-6);
}

TEST(Validation, ASlowerClusterIsCalibratedAway) {
  // Every step takes 1.3 times as long as predicted: fitted on other rows, the error shrinks to a part of it.
  Measurements made = data("vtrain.csv");
  for (Measurement& row : made.list) {
    row.seconds = 1.3 * predict_seconds(row, constants_for(row.problem.cluster, row.problem.profile.name));
  }
  const Validation validation = validate(std::move(made), "made.csv");
  EXPECT_NEAR(*validation.all.mape_uncalibrated, 100 * (1 - 1 / 1.3), 1e-9);
  EXPECT_LT(*validation.all.mape_calibrated, 6);
}

TEST(Validation, KindAndRankOfMemory) {
  Measurements made = data("training.csv");
  const auto found = std::find_if(made.list.begin(), made.list.end(),
                                  [](const Measurement& row) { return row.id == "simumax-011"; });
  ASSERT_NE(found, made.list.end());
  Measurement row = *found;
  Prediction allocated, reserved, device;
  predict_memory(row, allocated);
  row.memory->kind = MeasuredMemory::Kind::reserved;
  predict_memory(row, reserved);
  row.memory->kind = MeasuredMemory::Kind::device;
  predict_memory(row, device);
  EXPECT_LE(*allocated.bytes, *reserved.bytes);
  EXPECT_LT(*reserved.bytes, *device.bytes);
  EXPECT_EQ(*device.bytes, device.needed);
  EXPECT_EQ(device.fits, true);
  row.memory->scope = MeasuredMemory::Scope::last;
  predict_memory(row, device);
  EXPECT_LE(*device.bytes, device.needed);
}

/// Whatever a row says, it is predicted or left out, and every figure is a number.
TEST(Validation, MutatedRowsArePredictedOrLeftOut) {
  std::string text = training_header();
  for (std::uint64_t seed = 0; seed < 400; ++seed) text += mutated_row(seed);
  const Validation validation = validate(parse_measurements(text, "t.csv"), "t.csv");
  EXPECT_EQ(validation.measurements.rows, 400);
  for (std::size_t i = 0; i < validation.predictions.size(); ++i) {
    const Prediction& prediction = validation.predictions[i];
    const Measurement& row = validation.measurements.list[i];
    if (row.seconds) {
      EXPECT_GT(prediction.uncalibrated, 0) << row.id;
      EXPECT_TRUE(std::isfinite(prediction.calibrated)) << row.id;
    }
    if (row.fits) {
      EXPECT_GT(prediction.needed, 0) << row.id;
    }
  }
}

/// The published tables: what must not get worse.
TEST(Validation, SlowPublishedMeasurements) {
  const auto figures = [](const std::string& name) {
    return validate(read_measurements(std::string(NDMESH_TEST_DATA) + "/../../data/measurements/" + name),
                    name);
  };
  const auto broken = [](const Validation& validation, const std::vector<std::string>& texts) {
    std::vector<Limit> limits;
    for (const std::string& text : texts) limits.push_back(parse_limit(text));
    return broken_limits(limits, validation.all, validation.groups);
  };
  const Validation training = figures("training.csv");
  EXPECT_GE(training.all.verdict_rows, 400);
  EXPECT_THAT(broken(training, {"simumax-b200:memory_mape=1", "torchtitan:memory_mape=8", "verdict=97",
                                "mape_calibrated=10", "tau=0.7", "regret=1.3"}),
              testing::IsEmpty());
  EXPECT_THAT(broken(figures("vtrain.csv"), {"mape_calibrated=10", "tau=0.8"}), testing::IsEmpty());
}

TEST(Calibration, MovesConstantsTowardsTheRows) {
  Measurements made = data("vtrain.csv");
  for (Measurement& row : made.list) *row.seconds *= 1.2;
  const std::vector<Calibration> fits = calibrate(made);
  ASSERT_EQ(fits.size(), 1U);
  EXPECT_EQ(fits.front().architecture, "Ampere");
  EXPECT_EQ(fits.front().runtime, "deepspeed");
  EXPECT_EQ(fits.front().rows, 12U);
  EXPECT_LT(fits.front().error_after, fits.front().error_before);
  ASSERT_EQ(fits.front().before.list.size(), fits.front().after.list.size());
}

}  // namespace
}  // namespace ndmesh::plan
