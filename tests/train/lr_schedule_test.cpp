#include "ndmesh/train/lr_schedule.h"

#include <gtest/gtest.h>

namespace ndmesh::train {
namespace {

using job::ScheduleKind;

TEST(LrSchedule, WarmUpThenCosineToZero) {
  const job::LrScheduleSection cosine{ScheduleKind::cosine, 10, 0.0};
  EXPECT_DOUBLE_EQ(learning_rate(cosine, 1.0, 5, 100), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(cosine, 1.0, 10, 100), 1.0);
  EXPECT_NEAR(learning_rate(cosine, 1.0, 55, 100), 0.5, 1e-15);
  EXPECT_NEAR(learning_rate(cosine, 1.0, 100, 100), 0.0, 1e-15);
}

TEST(LrSchedule, LinearToAFloor) {
  const job::LrScheduleSection linear{ScheduleKind::linear, 0, 0.1};
  EXPECT_NEAR(learning_rate(linear, 2.0, 50, 100), 1.1, 1e-15);
  EXPECT_NEAR(learning_rate(linear, 2.0, 100, 100), 0.2, 1e-15);
}

TEST(LrSchedule, ConstantAfterWarmUpAlsoWhenWarmUpIsLongerThanTheRun) {
  const job::LrScheduleSection constant{ScheduleKind::constant, 4, 0.0};
  EXPECT_DOUBLE_EQ(learning_rate(constant, 1.0, 1, 3), 0.25);
  EXPECT_DOUBLE_EQ(learning_rate(constant, 1.0, 4, 100), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(constant, 1.0, 99, 100), 1.0);
}

}  // namespace
}  // namespace ndmesh::train
