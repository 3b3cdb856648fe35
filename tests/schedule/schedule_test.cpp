#include "ndmesh/schedule/schedule.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <limits>

#include "ndmesh/base/error.h"
#include "ndmesh/schedule/schedule_file.h"
#include "schedule/support.h"

namespace ndmesh::schedule {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

/// Forwards less releases, each as its chunk weighs, at their highest.
std::int64_t walked_peak(const std::vector<Action>& actions, const std::vector<std::int64_t>& weights) {
  std::int64_t held = 0, peak = 0;
  for (const Action& action : actions) {
    const std::int64_t weight = weights[static_cast<std::size_t>(action.chunk)];
    if (action.kind == ActionKind::forward) peak = std::max(peak, held += weight);
    if (action.kind == ActionKind::backward || action.kind == ActionKind::weight_grad) held -= weight;
  }
  EXPECT_EQ(held, 0);
  return peak;
}

std::int64_t largest_peak(const Shape& shape) {
  std::int64_t peak = 0;
  for (std::int64_t rank = 0; rank < shape.ranks; ++rank) peak = std::max(peak, peak_in_flight(shape, rank));
  return peak;
}

TEST(Schedules, EveryShapeIsSound) {
  for (const Shape& shape : small_shapes(7, 16)) {
    SCOPED_TRACE(testing::PrintToString(shape));
    EXPECT_THAT(defects(make_schedule(shape)), IsEmpty());
  }
  EXPECT_THAT(defects(make_schedule({Kind::one_f_one_b, 16, 1, 128})), IsEmpty());
}

TEST(Schedules, OneForwardOneBackward) {
  using enum ActionKind;
  const Schedule schedule = make_schedule({Kind::one_f_one_b, 2, 1, 2});
  EXPECT_THAT(schedule.ranks[0],
              ElementsAre(Action{forward, 0, 0}, Action{send_forward, 0, 0}, Action{forward, 0, 1},
                          Action{send_forward, 0, 1}, Action{receive_backward, 0, 0}, Action{backward, 0, 0},
                          Action{receive_backward, 0, 1}, Action{backward, 0, 1}, Action{optimizer, 0, 0}));
  EXPECT_THAT(schedule.ranks[1],
              ElementsAre(Action{receive_forward, 0, 0}, Action{forward, 0, 0}, Action{backward, 0, 0},
                          Action{send_backward, 0, 0}, Action{receive_forward, 0, 1}, Action{forward, 0, 1},
                          Action{backward, 0, 1}, Action{send_backward, 0, 1}, Action{optimizer, 0, 0}));
}

TEST(Schedules, TheTurnOfTheVSendsNothing) {
  const Schedule schedule = make_schedule({Kind::zb_v, 4, 2, 8});
  for (const Action& action : schedule.ranks[3]) {
    EXPECT_FALSE(action.kind == ActionKind::send_forward && action.chunk == 0);
    EXPECT_FALSE(action.kind == ActionKind::receive_backward && action.chunk == 0);
  }
  EXPECT_EQ(schedule.shape.stage_of(3, 1), 4);
  EXPECT_EQ(schedule.shape.stage_of(0, 1), 7);
}

TEST(Schedules, StagesAndRanksAreInverse) {
  for (const Shape& shape : small_shapes(5, 5)) {
    for (std::int64_t stage = 0; stage < shape.stages(); ++stage)
      EXPECT_EQ(shape.stage_of(shape.rank_of(stage), shape.chunk_of(stage)), stage);
  }
}

TEST(PeakInFlight, EqualsAWalk) {
  for (const Shape& shape : small_shapes(7, 18)) {
    const Schedule schedule = make_schedule(shape);
    for (std::int64_t rank = 0; rank < shape.ranks; ++rank) {
      const std::vector<std::int64_t> ones(static_cast<std::size_t>(shape.chunks), 1);
      EXPECT_EQ(peak_in_flight(shape, rank),
                walked_peak(schedule.ranks[static_cast<std::size_t>(rank)], ones))
          << testing::PrintToString(shape) << " rank " << rank;
    }
  }
}

TEST(PeakInFlight, OfChunksThatWeighDifferentlyEqualsAWalk) {
  std::mt19937 random(5);
  std::vector<Shape> shapes = small_shapes(6, 18);
  for (const std::int64_t chunks : {4, 5, 8}) {
    for (const std::int64_t count : {1, 3, 4, 6, 8, 12, 30}) {
      const Shape shape = {Kind::interleaved, 3, chunks, count};
      if (problems_of(shape).empty()) shapes.push_back(shape);
    }
  }
  for (const Shape& shape : shapes) {
    const Schedule schedule = make_schedule(shape);
    std::vector<std::int64_t> weights(static_cast<std::size_t>(shape.chunks));
    for (std::int64_t rank = 0; rank < shape.ranks; ++rank) {
      std::generate(weights.begin(), weights.end(), [&] { return static_cast<std::int64_t>(random() % 4); });
      const std::int64_t walked = walked_peak(schedule.ranks[static_cast<std::size_t>(rank)], weights);
      EXPECT_EQ(peak_in_flight(shape, rank, weights), walked)
          << testing::PrintToString(shape) << " rank " << rank << " " << testing::PrintToString(weights);
      EXPECT_EQ(most_in_flight(schedule, rank, weights), walked);
    }
  }
}

TEST(PeakInFlight, IsWhatThePapersSay) {
  EXPECT_EQ(largest_peak({Kind::gpipe, 8, 1, 32}), 32);
  EXPECT_EQ(largest_peak({Kind::one_f_one_b, 8, 1, 32}), 8);
  // Korthikanti et al. 2022: p (1 + (p - 1) / (p v)) micro-batches of v chunks.
  EXPECT_EQ(largest_peak({Kind::interleaved, 8, 4, 32}), 8 * 4 + 7);
  // Qi et al. 2023 and 2024: as much as 1F1B.
  EXPECT_EQ(largest_peak({Kind::zb_h1, 8, 1, 32}), 8);
  EXPECT_EQ(largest_peak({Kind::zb_v, 8, 2, 32}), 2 * 8);
}

TEST(Problems, MicroBatchesAndPipelineDepth) {
  EXPECT_THAT(problems_of({Kind::one_f_one_b, 8, 1, 2}), IsEmpty());   // waits a lot, but runs
  EXPECT_THAT(problems_of({Kind::interleaved, 4, 2, 10}), IsEmpty());  // 2 rounds of 5
  EXPECT_THAT(problems_of({Kind::interleaved, 4, 2, 8}), IsEmpty());
  EXPECT_THAT(problems_of({Kind::interleaved, 6, 2, 3}), IsEmpty());  // one round of 3
  EXPECT_THAT(problems_of({Kind::interleaved, 4, 2, 11}),
              ElementsAre(AllOf(HasSubstr("11 micro-batches"), HasSubstr("nearest: 10 or 12"))));
  EXPECT_THROW(make_schedule({Kind::interleaved, 4, 2, 11}), RequestError);
}

TEST(Problems, ChunksFollowTheKind) {
  const auto problem = [](std::string_view part) {
    return ElementsAre(AllOf(HasSubstr("pipeline.chunks"), HasSubstr(std::string(part))));
  };
  EXPECT_THAT(problems_of({Kind::one_f_one_b, 4, 2, 8}), problem("each rank has 1 chunk"));
  EXPECT_THAT(problems_of({Kind::interleaved, 4, 1, 8}), problem("with 1 chunk take 1f1b"));
  EXPECT_THAT(problems_of({Kind::zb_v, 4, 3, 8}), problem("each rank has 2 chunks"));
  EXPECT_THAT(problems_of({Kind::interleaved, 1, 2, 8}), problem("one rank has 1 chunk"));
  EXPECT_THAT(problems_of({Kind::interleaved, 4, 1, 11}), SizeIs(2));  // all at once
}

TEST(Problems, SizesAreBounded) {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  EXPECT_THAT(problems_of({Kind::gpipe, 0, -1, most}), SizeIs(2));
  EXPECT_THAT(problems_of({Kind::gpipe, 1, 1, 0}), ElementsAre(HasSubstr("micro-batches: 0")));
  EXPECT_THAT(problems_of({Kind::interleaved, most, most, most}), ElementsAre(HasSubstr("2097152 passes")));
  EXPECT_THAT(problems_of({Kind::gpipe, 1, 1, max_passes}), IsEmpty());
  EXPECT_THAT(problems_of({Kind::gpipe, 2, 1, max_passes}), SizeIs(1));
}

}  // namespace
}  // namespace ndmesh::schedule
