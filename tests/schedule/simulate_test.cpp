#include "ndmesh/schedule/simulate.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <stdexcept>

#include "ndmesh/base/error.h"
#include "schedule/event_loop.h"
#include "schedule/support.h"

namespace ndmesh::schedule {
namespace {

using testing::ElementsAre;

double simulated_bubble(const Shape& shape, const StageSeconds& seconds) {
  return simulate(shape, equal_stages(shape, seconds)).bubble();
}

TEST(Simulate, EqualsAnEventLoopOverTheActions) {
  std::mt19937 random(1);
  for (const Shape& shape : small_shapes(6, 13)) {
    SCOPED_TRACE(testing::PrintToString(shape));
    const std::vector<StageSeconds> stages = random_stages(shape, random);
    const Schedule schedule = make_schedule(shape);
    EventLoop loop(schedule, stages);
    ASSERT_TRUE(loop.finishes());
    const double seconds = loop.seconds();
    EXPECT_NEAR(simulate(shape, stages).seconds, seconds, 1e-12 * seconds);
    const Simulation of_list = simulate_list(schedule, stages);
    EXPECT_NEAR(of_list.seconds, seconds, 1e-12 * seconds);
    EXPECT_NEAR(of_list.bubble(), simulate(shape, stages).bubble(), 1e-9);
  }
}

TEST(Simulate, BubblesOfEqualStagesAreThePublishedOnes) {
  for (std::int64_t p = 1; p <= 16; ++p) {
    const auto ranks = static_cast<double>(p);
    for (const std::int64_t m : {1, 2, 7, 16, 50}) {
      const double share = (ranks - 1) / (static_cast<double>(m) + ranks - 1);
      EXPECT_NEAR(simulated_bubble({Kind::gpipe, p, 1, m}, {1, 0.7, 0.6, 0}), share, 1e-12);
      EXPECT_NEAR(simulated_bubble({Kind::one_f_one_b, p, 1, m}, {1, 0.7, 0.6, 0}), share, 1e-12);
    }
  }
  // Narayanan et al. 2021: 1 / v of the waiting.
  for (const std::int64_t p : {2, 4, 8}) {
    for (const std::int64_t v : {2, 3, 4}) {
      const auto passes = static_cast<double>(v * 3 * p), ranks = static_cast<double>(p);
      EXPECT_NEAR(simulated_bubble({Kind::interleaved, p, v, 3 * p}, {1, 1.5, 0.5, 0}),
                  (ranks - 1) / (passes + ranks - 1), 1e-12);
    }
  }
}

TEST(Simulate, ZeroBubbleSchedulesWaitAsPublished) {
  for (std::int64_t p = 2; p <= 12; ++p) {
    const auto ranks = static_cast<double>(p);
    // Qi et al. 2023, ZB-H1: (p - 1) (F + I - W); more than I is not to be filled.
    const Shape shape = {Kind::zb_h1, p, 1, 2 * p};
    for (const double w : {0.2, 0.5, 0.9, 1.5}) {
      EXPECT_NEAR(simulate(shape, equal_stages(shape, {1.0, 0.9, w, 0})).seconds,
                  static_cast<double>(2 * p) * (1.9 + w) + (ranks - 1) * (1.0 + std::max(0.0, 0.9 - w)),
                  1e-9);
    }
    // ZB-V with F = I = W: no rank waits between its first and last pass; rank r begins r forwards late.
    const Shape v = {Kind::zb_v, p, 2, 2 * p};
    EXPECT_NEAR(simulate(v, equal_stages(v, {1, 1, 1, 0})).seconds,
                static_cast<double>(2 * p) * 6 + ranks - 1, 1e-9);
  }
}

// Qi et al., "Zero Bubble Pipeline Parallelism" (arXiv 2401.10241): seconds of one stage as profiled (table 4)
// and the share of waiting that follows (table 5).
struct Published {
  std::int64_t ranks, micro_batches;
  StageSeconds milliseconds;
  double one_f_one_b, zb_1p;  // 0: not noted here
};

TEST(Simulate, GivesTheBubblesOfPublishedProfiles) {
  const StageSeconds m1 = {18.522, 18.086, 9.337, 0.601};  // 1.5B
  const StageSeconds m6 = {29.718, 29.444, 19.927, 0.527};
  const StageSeconds m14 = {11.347, 11.248, 8.132, 0.377};
  const StageSeconds m28 = {10.419, 10.204, 7.715, 0.408};
  for (const Published& row :
       {Published{8, 24, m1, 0.2431, 0}, Published{8, 32, m1, 0, 0.1242}, Published{8, 64, m1, 0, 0.0674},
        Published{8, 24, m6, 0, 0.1323}, Published{8, 64, m6, 0.1091, 0.0554},
        Published{16, 48, m14, 0.2552, 0.1397}, Published{16, 64, m14, 0, 0.1088},
        Published{32, 96, m28, 0, 0.1421}, Published{32, 128, m28, 0.2168, 0.1106}}) {
    SCOPED_TRACE(row.micro_batches);
    const auto bubble = [&](Kind kind) {
      return simulated_bubble({kind, row.ranks, 1, row.micro_batches}, row.milliseconds);
    };
    if (row.one_f_one_b > 0) {
      EXPECT_NEAR(bubble(Kind::one_f_one_b), row.one_f_one_b, 1.5e-4);
    }
    // Theirs was searched for each profile, ours is one order for all.
    if (row.zb_1p > 0) {
      EXPECT_NEAR(bubble(Kind::zb_h1), row.zb_1p, 1.5e-3);
    }
  }
}

TEST(Simulate, ManyShapesKeepTheirOwnOrders) {
  for (int turn = 0; turn < 2; ++turn) {  // first more shapes than are kept, then more steps
    for (std::int64_t count = 1; count <= 300; ++count) {
      const Shape shape =
          count <= 200 ? Shape{Kind::gpipe, 2, 1, count} : Shape{Kind::one_f_one_b, 16, 1, 4 * count};
      EXPECT_DOUBLE_EQ(simulate(shape, equal_stages(shape, {1, 1, 1, 0})).seconds,
                       static_cast<double>(3 * (shape.micro_batches + shape.ranks - 1)));
    }
  }
}

TEST(Simulate, WithOneRankNothingWaits) {
  for (const Kind kind : all_kinds) {
    const Shape shape = {kind, 1, 1, 5};
    const Simulation simulation = simulate(shape, equal_stages(shape, {1, 2, 3, 4}));
    EXPECT_DOUBLE_EQ(simulation.seconds, 30);
    EXPECT_DOUBLE_EQ(simulation.bubble(), 0);
  }
  EXPECT_EQ(simulate({Kind::gpipe, 2, 1, 2}, equal_stages({Kind::gpipe, 2, 1, 2}, {})).bubble(), 0);
}

TEST(Simulate, NeverFasterWithMoreToDo) {
  std::mt19937 random(2);
  for (const Shape& shape : small_shapes(5, 9)) {
    SCOPED_TRACE(testing::PrintToString(shape));
    std::vector<StageSeconds> stages = random_stages(shape, random);
    const double seconds = simulate(shape, stages).seconds;
    Shape more = shape;
    do ++more.micro_batches;
    while (!problems_of(more).empty());
    EXPECT_GE(simulate(more, stages).seconds, seconds);
    StageSeconds& slower = stages[random() % stages.size()];
    double* const parts[] = {&slower.forward, &slower.input_grad, &slower.weight_grad, &slower.send};
    *parts[random() % 4] += 0.5;
    EXPECT_GE(simulate(shape, stages).seconds, seconds * (1 - 1e-12));
  }
}

TEST(Simulate, IntervalsAreThePassesOfEachRankInOrder) {
  std::mt19937 random(3);
  for (const Shape& shape : small_shapes(4, 6)) {
    SCOPED_TRACE(testing::PrintToString(shape));
    const Simulation simulation = simulate(shape, random_stages(shape, random), true);
    std::vector<double> busy(simulation.busy.size(), 0), last(simulation.busy.size(), 0);
    for (const Interval& interval : simulation.intervals) {
      const auto rank = static_cast<std::size_t>(interval.rank);
      EXPECT_GE(interval.start, last[rank]);
      last[rank] = interval.end;
      busy[rank] += interval.end - interval.start;
    }
    EXPECT_EQ(*std::max_element(last.begin(), last.end()), simulation.seconds);
    for (std::size_t rank = 0; rank < busy.size(); ++rank)
      EXPECT_NEAR(busy[rank], simulation.busy[rank], 1e-12 * busy[rank]);
  }
}

TEST(Simulate, RefusesWhatIsNoSchedule) {
  EXPECT_THROW(simulate({Kind::interleaved, 4, 2, 11}, std::vector<StageSeconds>(8)), RequestError);
  EXPECT_THROW(simulate({Kind::gpipe, 4, 1, 8}, std::vector<StageSeconds>(3)), std::invalid_argument);
  EXPECT_THROW(least_seconds({Kind::gpipe, 4, 1, 8}, std::vector<StageSeconds>(5)), std::invalid_argument);
}

TEST(LeastSeconds, IsNeverAboveTheSimulation) {
  std::mt19937 random(4);
  for (const Shape& shape : small_shapes(7, 16)) {
    SCOPED_TRACE(testing::PrintToString(shape));
    const std::vector<StageSeconds> stages = random_stages(shape, random);
    const double seconds = simulate(shape, stages).seconds;
    EXPECT_LE(least_seconds(shape, stages), seconds * (1 + 1e-12));
    if (shape.kind == Kind::gpipe) {
      EXPECT_NEAR(least_seconds(shape, stages), seconds, 1e-12 * seconds);
    }
  }
}

TEST(LeastSeconds, IsExactForEqualStagesAndFreeTransfers) {
  const StageSeconds seconds = {1, 1, 1, 0};
  for (const Shape& shape : {Shape{Kind::gpipe, 8, 1, 32}, Shape{Kind::one_f_one_b, 8, 1, 32},
                             Shape{Kind::one_f_one_b, 8, 1, 3}, Shape{Kind::zb_h1, 8, 1, 32}}) {
    SCOPED_TRACE(testing::PrintToString(shape));
    EXPECT_DOUBLE_EQ(least_seconds(shape, equal_stages(shape, seconds)),
                     simulate(shape, equal_stages(shape, seconds)).seconds);
  }
}

TEST(Timeline, ShowsWhoDoesWhatWhen) {
  const Shape shape = {Kind::gpipe, 2, 1, 2};
  const Simulation simulation = simulate(shape, equal_stages(shape, {1, 1, 1, 0}), true);
  EXPECT_THAT(timeline(simulation, shape, 9), ElementsAre("01...aabb", ".01aabb.."));
  const Shape split = {Kind::zb_h1, 2, 1, 2};
  EXPECT_THAT(timeline(simulate(split, equal_stages(split, {1, 1, 1, 0}), true), split, 7),
              ElementsAre("01.aAbB", ".0a1bAB"));
}

}  // namespace
}  // namespace ndmesh::schedule
