#include <ATen/core/grad_mode.h>
#include <c10/core/AutogradState.h>

#include <map>
#include <thread>

#include "comm/support.h"

namespace ndmesh::comm {
namespace {

TEST(Runs, FollowOneAnother) {
  for (int turn = 0; turn < 20; ++turn) {
    run(4, [&](Communicator& c) {
      at::Tensor tensor = at::full({2}, turn, at::kLong);
      c.everyone().all_reduce({tensor}, Reduction::sum, "turn");
      EXPECT_EQ(tensor[1].item<std::int64_t>(), 4 * turn);
    });
  }
}

TEST(Runs, WorkAfterAFailedOne) {
  EXPECT_THROW(run(2, [](Communicator& c) { c.rank() == 0 ? c.everyone().barrier("alone") : void(); }),
               RunError);
  run(2, [](Communicator& c) { c.everyone().barrier("together"); });
}

TEST(Runs, TakeLimitsOfAnyLength) {
  constexpr auto forever = std::chrono::milliseconds::max();
  const Limits limits = {forever, forever, forever, forever};
  run(
      2, [](Communicator& c) { c.everyone().barrier("together"); }, limits);
  EXPECT_THROW(
      run(
          2, [](Communicator& c) { c.rank() == 0 ? c.everyone().barrier("alone") : void(); }, limits),
      RunError);
}

TEST(Runs, Overlap) {
  const auto sums = [](std::int64_t start) {
    run(2, [=](Communicator& c) {
      for (std::int64_t i = 0; i < 100; ++i) {
        at::Tensor tensor = at::full({64}, start + i, at::kLong);
        c.everyone().all_reduce({tensor}, Reduction::sum, "overlapping");
        EXPECT_EQ(tensor[63].item<std::int64_t>(), 2 * (start + i));
      }
    });
  };
  std::thread other([&] { sums(1000); });
  sums(0);
  other.join();
}

TEST(Runs, SixteenRanksShareFewCores) {
  run(16, [](Communicator& c) {
    at::Tensor tensor = at::ones({8}, at::kFloat);
    for (int i = 0; i < 25; ++i) {
      c.everyone().all_reduce({tensor}, Reduction::sum, "doubling");
      tensor.div_(16);
      c.everyone().barrier("step");
    }
    EXPECT_TRUE(at::equal(tensor, at::ones({8}, at::kFloat)));
  });
}

TEST(Runs, RankThreadsComputeGradientsOnThemselves) {
  const at::NoGradGuard off;  // the caller's mode is not inherited
  run(2, [](Communicator&) {
    EXPECT_TRUE(at::GradMode::is_enabled());
    EXPECT_FALSE(c10::AutogradState::get_tls_state().get_multithreading_enabled());
  });
}

TEST(Runs, MembersAreCountedByRankInAnyOrderOfAxes) {
  using mesh::Axis;
  const mesh::Mesh mesh({.tp = 2, .dp_shard = 2},
                        {Axis::dp_shard, Axis::tp, Axis::cp, Axis::dp_replicate, Axis::pp});
  run_ranks(mesh, {}, [&](Communicator& c) {
    EXPECT_EQ(c.world(), 4);
    EXPECT_EQ(c.everyone().rank(), c.rank());
    EXPECT_EQ(c.everyone().members(), (std::vector<std::int64_t>{0, 1, 2, 3}));
    const at::Tensor out = at::empty({4}, at::kLong);
    c.everyone().all_gather({out}, {at::full({1}, c.rank(), at::kLong)}, "ranks");
    EXPECT_TRUE(at::equal(out, at::arange(4, at::kLong)));
    const at::Tensor both = at::empty({4}, at::kLong);
    c.group({Axis::tp, Axis::dp_shard}).all_gather({both}, {at::full({1}, c.rank(), at::kLong)}, "ranks");
    EXPECT_TRUE(at::equal(both, at::tensor(mesh.group(0, {Axis::tp, Axis::dp_shard}), at::kLong)));
  });
}

TEST(Observer, SeesEachCollectiveWithSaneNumbers) {
  run(4, [](Communicator& c) {
    std::vector<CollectiveRecord> records;
    c.observe([&, thread = std::this_thread::get_id()](const CollectiveRecord& r) {
      EXPECT_EQ(std::this_thread::get_id(), thread);
      records.push_back(r);
    });
    Group& group = c.everyone();
    const at::Tensor eight = at::ones({8}, at::kFloat), two = at::ones({2}, at::kFloat);
    group.all_reduce({eight}, Reduction::sum, "sum");
    group.reduce_scatter({two}, {eight}, false, "scatter");
    group.all_gather({at::ones({8}, at::kDouble)}, {two}, "gather");
    group.broadcast({two}, 1, "values");
    const at::Tensor got = at::empty({2}, at::kFloat);  // of its own: peers read `two` meanwhile
    group.all_to_all({got, got, got, got}, {two, two, two, two}, "tokens");
    if (c.rank() < 2) {
      c.rank() == 0 ? group.send(two, 1, "message") : group.recv(two, 0, "message");
    }
    if (c.rank() == 3) {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));  // late on purpose
    }
    group.barrier("end");
    c.observe({});
    group.barrier("unseen");

    // Lower bounds with 32 bytes in all: 2 * 3/4, 3/4, 3/4; then one tensor, three tensors, one tensor,
    // nothing.
    std::map<std::string, std::int64_t> bytes = {{"sum", 48},    {"scatter", 24},
                                                 {"gather", 24}, {"values", c.rank() == 1 ? 0 : 8},
                                                 {"tokens", 24}, {"message", c.rank() == 1 ? 8 : 0},
                                                 {"end", 0}};
    EXPECT_EQ(records.size(), c.rank() < 2 ? 7u : 6u);
    for (const CollectiveRecord& r : records) {
      EXPECT_EQ(r.group, &group);
      EXPECT_EQ(r.bytes, bytes.at(r.label)) << r.label;
      EXPECT_LE(r.started, r.waited);
      EXPECT_LE(r.waited, r.finished);
      EXPECT_GE(r.skew, 0);
      EXPECT_GE(r.transfer, 0);
    }
    EXPECT_EQ(records.front().op, Op::all_reduce);
    const CollectiveRecord& end = records.back();
    EXPECT_NEAR(end.skew + end.transfer, end.finished - end.waited, 1e-6);
    const at::Tensor last_came = at::full({1}, end.started, at::kDouble);
    group.broadcast({last_came}, 3, "time");  // nobody's wait can have ended before rank 3 came
    EXPECT_GE(end.skew, last_came.item<double>() - end.waited - 1e-6);
  });
}

}  // namespace
}  // namespace ndmesh::comm
