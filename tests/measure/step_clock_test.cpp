#include "ndmesh/measure/step_clock.h"

#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "ndmesh/comm/world.h"

namespace ndmesh::measure {
namespace {

using std::chrono::milliseconds;

TEST(StepClock, EverySecondBelongsToOnePart) {
  StepClock clock;
  clock.begin();
  std::this_thread::sleep_for(milliseconds(2));
  clock.enter(Part::input);
  std::this_thread::sleep_for(milliseconds(4));
  clock.enter(Part::compute);
  const StepTimes times = clock.end();
  EXPECT_NEAR(std::accumulate(times.parts.begin(), times.parts.end(), 0.0), times.total, 1e-12);
  EXPECT_GE(times[Part::other], 0.002);
  EXPECT_GE(times[Part::input], 0.004);
}

TEST(StepClock, WaitingMovesFromItsPartToExposed) {
  comm::run_ranks(mesh::Mesh({.dp_shard = 2}), {}, [](comm::Communicator& communicator) {
    comm::Group& group = communicator.group({mesh::Axis::dp_shard});
    comm::CollectiveRecord record;
    record.group = &group;
    record.op = comm::Op::all_gather;
    record.skew = 0.25;
    record.transfer = 0.5;
    StepClock clock;
    clock.begin();
    clock.enter(Part::compute);
    clock.add(record);
    clock.add(record);
    const StepTimes times = clock.end();
    EXPECT_DOUBLE_EQ(times[Part::exposed], 1.5);
    EXPECT_DOUBLE_EQ(times.exposed.at("dp_shard/all_gather").skew, 0.5);
    EXPECT_DOUBLE_EQ(times.exposed.at("dp_shard/all_gather").transfer, 1.0);
    EXPECT_NEAR(std::accumulate(times.parts.begin(), times.parts.end(), 0.0), times.total, 1e-12);
  });
}

}  // namespace
}  // namespace ndmesh::measure
