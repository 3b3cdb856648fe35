#include "ndmesh/train/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace ndmesh::train {

double learning_rate(const job::LrScheduleSection& schedule, double peak, std::int64_t step,
                     std::int64_t steps) {
  if (step < schedule.warmup) {
    return peak * static_cast<double>(step) / static_cast<double>(schedule.warmup);
  }
  const auto falling_steps = static_cast<double>(std::max<std::int64_t>(steps - schedule.warmup, 1));
  const double done = std::clamp(static_cast<double>(step - schedule.warmup) / falling_steps, 0.0, 1.0);
  const double floor = schedule.final_ratio;
  switch (schedule.name) {
    case job::ScheduleKind::constant:
      return peak;
    case job::ScheduleKind::linear:
      return peak * (1.0 - (1.0 - floor) * done);
    case job::ScheduleKind::cosine:
      return peak * (floor + (1.0 - floor) * 0.5 * (1.0 + std::cos(std::numbers::pi * done)));
  }
  return peak;
}

}  // namespace ndmesh::train
