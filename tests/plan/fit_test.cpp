#include "ndmesh/plan/time/fit.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ndmesh/base/error.h"
#include "ndmesh/plan/time/step_time.h"
#include "plan/time_support.h"

namespace ndmesh::plan {
namespace {

/// Steps of several sizes on one node under `truth`.
std::vector<Observation> measured_under(const Constants& truth) {
  std::vector<Observation> observations;
  for (const std::int64_t tp : {1, 2, 8}) {
    for (const std::int64_t micro : {1, 4}) {
      for (const std::int64_t hidden : {1024, 4096}) {
        Observation observation;
        observation.problem = test::small_problem(test::two_levels(1, 8, 300e9, 0));
        observation.problem.model.hidden = hidden;
        observation.candidate.mesh = {.tp = tp, .dp_shard = 8 / tp};
        observation.candidate.micro = micro;
        observation.candidate.zero = 1;
        observation.seconds = TimeModel(observation.problem, truth).step(observation.candidate).seconds;
        observations.push_back(observation);
      }
    }
  }
  return observations;
}

double worst_error(const std::vector<Observation>& observations, const Constants& constants) {
  double worst = 0;
  for (const Observation& observation : observations) {
    const double seconds = TimeModel(observation.problem, constants).step(observation.candidate).seconds;
    worst = std::max(worst, std::abs(seconds / observation.seconds - 1));
  }
  return worst;
}

Constants start() {
  return constants_for(test::two_levels(1, 8, 300e9, 0), "megatron");
}

TEST(Fit, FindsThePlantedConstants) {
  Constants truth = start();
  truth.at("matmul_efficiency") *= 0.85;
  truth.at("inner_efficiency") *= 1.2;
  truth.at("host_seconds") *= 1.5;
  const std::vector<Observation> observations = measured_under(truth);
  EXPECT_GT(worst_error(observations, start()), 0.10);
  const Constants found = fit(observations, start());
  EXPECT_LT(worst_error(observations, found), 0.03);
  EXPECT_NEAR(found["matmul_efficiency"] / truth["matmul_efficiency"], 1, 0.08);
}

TEST(Fit, OneWildRowDoesNotDecide) {
  const Constants truth = start();
  std::vector<Observation> observations = measured_under(truth);
  observations[3].seconds *= 5;
  const Constants found = fit(observations, start());
  observations.erase(observations.begin() + 3);
  EXPECT_LT(worst_error(observations, found), 0.06);
}

TEST(Fit, KnownConstantsStayAndOthersStayNear) {
  Constants truth = start();
  truth.at("matmul_efficiency") *= 0.3;  // six spreads away
  std::vector<Observation> observations = measured_under(truth);
  observations.resize(2);
  const Constants found = fit(observations, start());
  for (std::size_t i = 0; i < found.list.size(); ++i) {
    const Constant& constant = found.list[i];
    const double moved = std::abs(std::log(constant.value / start().list[i].value));
    EXPECT_LE(moved, 3 * constant.spread + 1e-9) << constant.name;
  }
}

TEST(Fit, NothingMeasuredChangesNothing) {
  const Constants found = fit({}, start());
  for (std::size_t i = 0; i < found.list.size(); ++i) {
    EXPECT_EQ(found.list[i].value, start().list[i].value);
  }
}

TEST(Fit, TimesMustBePositive) {
  std::vector<Observation> observations = measured_under(start());
  observations[0].seconds = 0;
  observations[1].seconds = NAN;
  try {
    fit(observations, start());
    FAIL() << "no error";
  } catch (const RequestError& error) {
    EXPECT_EQ(error.problems().size(), 2u);
  }
}

}  // namespace
}  // namespace ndmesh::plan
