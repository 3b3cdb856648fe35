#include "comm/support.h"

namespace ndmesh::comm {
namespace {

using testing::Combine;
using testing::Values;

constexpr std::array<at::ScalarType, 5> reducible = {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf,
                                                     at::kLong};

/// Sizes of a group, and rows of a tensor: more than, as many as and fewer than the ranks; none.
class Collectives : public testing::TestWithParam<std::tuple<int, int>> {
 protected:
  std::int64_t ranks() const { return std::get<0>(GetParam()); }
  std::vector<std::int64_t> shape() const { return {std::get<1>(GetParam()), 3}; }
};

INSTANTIATE_TEST_SUITE_P(Sizes, Collectives, Combine(Values(1, 2, 3, 4, 5), Values(0, 1, 3, 5, 17)));

TEST_P(Collectives, AllReduceSumsInPlace) {
  run(ranks(), [&](Communicator& c) {
    for (const at::ScalarType dtype : reducible) {
      at::Tensor a = values(c.rank(), shape(), dtype);
      at::Tensor b = values(c.rank() + 9, {2, 2}, at::kDouble);
      c.everyone().all_reduce({a, b}, Reduction::sum, "two tensors");
      EXPECT_TRUE(at::equal(a, sum_of(ranks(), shape(), dtype))) << dtype;
      at::Tensor expected_b = at::zeros({2, 2}, at::kDouble);
      for (std::int64_t rank = 0; rank < ranks(); ++rank) {
        expected_b = expected_b + values(rank + 9, {2, 2}, at::kDouble);
      }
      EXPECT_TRUE(at::equal(b, expected_b));
    }
  });
}

TEST_P(Collectives, AllReduceTakesTheMaximum) {
  run(ranks(), [&](Communicator& c) {
    for (const at::ScalarType dtype : reducible) {
      at::Tensor tensor = values(c.rank(), shape(), dtype);
      c.everyone().all_reduce({tensor}, Reduction::max, "max");
      at::Tensor expected = values(0, shape(), dtype);
      for (std::int64_t rank = 1; rank < ranks(); ++rank) {
        expected = at::maximum(expected, values(rank, shape(), dtype));
      }
      EXPECT_TRUE(at::equal(tensor, expected)) << dtype;
    }
  });
}

TEST_P(Collectives, ReduceScatterGivesEachRankItsRowsOfTheSum) {
  run(ranks(), [&](Communicator& c) {
    for (const at::ScalarType dtype : reducible) {
      const at::Tensor expected = rows(sum_of(ranks(), shape(), dtype), ranks(), c.rank());
      const at::Tensor out = at::empty_like(expected);
      c.everyone().reduce_scatter({out}, {values(c.rank(), shape(), dtype)}, false, "gradients");
      EXPECT_TRUE(at::equal(out, expected)) << dtype;
    }
  });
}

TEST_P(Collectives, ReduceScatterAddsToWiderOutputs) {
  run(ranks(), [&](Communicator& c) {
    for (const auto& [from, to] :
         {std::pair(at::kBFloat16, at::kFloat), std::pair(at::kHalf, at::kFloat),
          std::pair(at::kFloat, at::kDouble), std::pair(at::kBFloat16, at::kDouble)}) {
      const at::Tensor sum = rows(sum_of(ranks(), shape(), to), ranks(), c.rank());
      const at::Tensor out = at::full_like(sum, 1000.25);
      c.everyone().reduce_scatter({out}, {values(c.rank(), shape(), from)}, true, "gradients");
      EXPECT_TRUE(at::equal(out, sum + 1000.25)) << from << " to " << to;
    }
  });
}

TEST_P(Collectives, AllGatherConcatenatesRows) {
  run(ranks(), [&](Communicator& c) {
    for (const at::ScalarType dtype : {at::kDouble, at::kBFloat16, at::kLong, at::kByte, at::kBool}) {
      const at::Tensor whole = values(3, shape(), at::kLong).abs().to(dtype);
      const at::Tensor scalar_rows = values(4, {7}, dtype);
      const at::Tensor out = at::empty_like(whole);
      const at::Tensor out2 = at::empty_like(scalar_rows);
      c.everyone().all_gather(
          {out, out2}, {rows(whole, ranks(), c.rank()), rows(scalar_rows, ranks(), c.rank())}, "parameters");
      EXPECT_TRUE(at::equal(out, whole)) << dtype;
      EXPECT_TRUE(at::equal(out2, scalar_rows)) << dtype;
    }
  });
}

TEST_P(Collectives, AllGatherConvertsOnTheWay) {
  // Numbers that float32 holds: from others ATen, the reference, gets to 16 bits by rounding twice.
  const at::Tensor whole = (at::randn(shape(), at::kFloat) * 3).to(at::kDouble);
  run(ranks(), [&](Communicator& c) {
    for (const at::ScalarType from : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
      for (const at::ScalarType to : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
        const at::Tensor source = whole.to(from);
        const at::Tensor out = at::empty(shape(), to);
        c.everyone().all_gather({out}, {rows(source, ranks(), c.rank())}, "parameters");
        EXPECT_TRUE(at::equal(out, source.to(to))) << from << " to " << to;
      }
    }
  });
}

TEST_P(Collectives, AllGatherInPlaceKeepsItsOwnRows) {
  run(ranks(), [&](Communicator& c) {
    const at::Tensor whole = values(1, shape(), at::kFloat);
    const at::Tensor out = at::zeros_like(whole);
    const layout::Range mine = layout::split(whole.size(0), ranks(), c.rank());
    const at::Tensor input = out.narrow(0, mine.start, mine.size);
    input.copy_(whole.narrow(0, mine.start, mine.size));
    c.everyone().all_gather({out}, {input}, "in place");
    EXPECT_TRUE(at::equal(out, whole));
  });
}

TEST_P(Collectives, BroadcastCopiesFromEachRoot) {
  run(ranks(), [&](Communicator& c) {
    for (int root = 0; root < c.everyone().size(); ++root) {
      at::Tensor a = values(c.rank(), shape(), at::kBFloat16);
      at::Tensor b = values(c.rank() + 2, {}, at::kInt);
      c.everyone().broadcast({a, b}, root, "initial values");
      EXPECT_TRUE(at::equal(a, values(root, shape(), at::kBFloat16)));
      EXPECT_TRUE(at::equal(b, values(root + 2, {}, at::kInt)));
    }
  });
}

/// Rows that rank `from` sends to rank `to`; some are none.
std::int64_t uneven(std::int64_t from, std::int64_t to) {
  return (3 * from + 2 * to) % 5;
}

TEST_P(Collectives, AllToAllTakesUnevenSizes) {
  const std::int64_t width = std::get<1>(GetParam());
  run(ranks(), [&](Communicator& c) {
    Group::Tensors inputs, outputs;
    for (std::int64_t peer = 0; peer < ranks(); ++peer) {
      inputs.push_back(values(10 * c.rank() + peer, {uneven(c.rank(), peer), width}, at::kFloat));
      outputs.push_back(at::empty({uneven(peer, c.rank()), width}, at::kFloat));
    }
    c.everyone().all_to_all(outputs, inputs, "tokens");
    for (std::int64_t peer = 0; peer < ranks(); ++peer) {
      const at::Tensor expected = values(10 * peer + c.rank(), {uneven(peer, c.rank()), width}, at::kFloat);
      EXPECT_TRUE(at::equal(outputs[static_cast<std::size_t>(peer)], expected));
    }
  });
}

TEST(Collective, OfNoTensorsEndsToo) {
  run(2, [](Communicator& c) {
    c.everyone().all_reduce({}, Reduction::sum, "nothing");
    c.everyone().all_gather({}, {}, "nothing");
    c.everyone().reduce_scatter({}, {}, true, "nothing");
  });
}

TEST(Collective, ThatWasNotStartedIsNotWaitedFor) {
  Work work;
  work.wait();
  work.release();
  EXPECT_FALSE(work.started());
}

TEST(Collective, LargeAllReduceIsSharedOutCorrectly) {
  const at::Tensor a = at::randn({300001}, at::kFloat), b = at::randn({300001}, at::kFloat);
  run(3, [&](Communicator& c) {
    at::Tensor large = (c.rank() == 0 ? a : b).clone();
    at::Tensor small = at::full({5}, static_cast<double>(c.rank()), at::kDouble);
    at::Tensor second = (c.rank() == 2 ? a : b).clone();
    c.everyone().all_reduce({large, small, second}, Reduction::sum, "large");
    EXPECT_TRUE(at::equal(large, (a + b) + b));
    EXPECT_TRUE(at::equal(small, at::full({5}, 3.0, at::kDouble)));
    EXPECT_TRUE(at::equal(second, (b + b) + a));
  });
}

TEST(Collective, ManyStartedAtOnceAreReleasedInAnyOrder) {
  constexpr int count = 12;
  run(3, [](Communicator& c) {
    std::vector<Work> works;
    Group::Tensors sums, gathered;
    for (int i = 0; i < count; ++i) {
      sums.push_back(values(c.rank() + i, {1000}, at::kFloat));
      gathered.push_back(at::empty({10, 2}, at::kFloat));
      works.push_back(c.everyone().start_all_reduce({sums.back()}, Reduction::sum, "sum"));
      works.push_back(c.everyone().start_all_gather(
          {gathered.back()}, {rows(values(i, {10, 2}, at::kFloat), 3, c.rank())}, "gather"));
    }
    for (std::size_t i = 0; i < works.size(); ++i) {  // each rank in another order
      works[(i * 7 + static_cast<std::size_t>(c.rank()) * 5) % works.size()].wait();
    }
    for (Work& work : works) {
      work.release();
      EXPECT_FALSE(work.started());
    }
    for (int i = 0; i < count; ++i) {
      const std::size_t n = static_cast<std::size_t>(i);
      const at::Tensor expected = values(i, {1000}, at::kFloat) + values(i + 1, {1000}, at::kFloat) +
                                  values(i + 2, {1000}, at::kFloat);
      EXPECT_TRUE(at::equal(sums[n], expected));
      EXPECT_TRUE(at::equal(gathered[n], values(i, {10, 2}, at::kFloat)));
    }
  });
}

TEST(Collective, InputsMayChangeAfterRelease) {
  run(2, [](Communicator& c) {
    for (int round = 0; round < 200; ++round) {
      const at::Tensor input = at::full({500}, static_cast<double>(10 * round + c.rank()), at::kFloat);
      const at::Tensor out = at::empty({1000}, at::kFloat);
      c.everyone().all_gather({out}, {input}, "round");
      input.fill_(-1);  // a peer that still read it would see this
      EXPECT_EQ(out[0].item<float>(), 10 * round);
      EXPECT_EQ(out[999].item<float>(), 10 * round + 1);
    }
  });
}

TEST(Groups, OverAxesOfAMeshSumOverTheirMembersOnly) {
  const mesh::Mesh mesh({.tp = 2, .dp_shard = 2, .pp = 2});
  using mesh::Axis;
  run_ranks(mesh, {}, [&](Communicator& c) {
    for (const mesh::AxisSet axes :
         {mesh::AxisSet{Axis::tp}, mesh::AxisSet{Axis::dp_shard}, mesh::AxisSet{Axis::pp},
          mesh::AxisSet{Axis::tp, Axis::pp}, mesh::AxisSet{Axis::cp}, mesh::AxisSet{},
          mesh::AxisSet{Axis::tp, Axis::dp_shard, Axis::pp}}) {
      Group& group = c.group(axes);
      EXPECT_EQ(&group, &c.group(axes));
      EXPECT_EQ(group.members(), mesh.group(c.rank(), axes));
      EXPECT_EQ(group.rank(), mesh.index_in(c.rank(), axes));
      EXPECT_EQ(group.name(), axes.name());
      at::Tensor ranks = at::full({}, c.rank(), at::kLong);
      group.all_reduce({ranks}, Reduction::sum, "ranks");
      const std::vector<std::int64_t> members = mesh.group(c.rank(), axes);
      EXPECT_EQ(ranks.item<std::int64_t>(), std::accumulate(members.begin(), members.end(), std::int64_t{0}));
    }
    EXPECT_EQ(c.everyone().size(), 8);
    EXPECT_EQ(c.everyone().rank(), c.rank());
  });
}

TEST(Subgroup, SumsOverItsMembersOnly) {
  run_ranks(mesh::Mesh({.tp = 6}), {}, [](Communicator& communicator) {
    const std::int64_t pair = communicator.rank() / 2 * 2;
    Group& two = communicator.subgroup({mesh::Axis::tp}, {pair, pair + 1});
    EXPECT_EQ(&two, &communicator.subgroup({mesh::Axis::tp}, {pair, pair + 1}));
    EXPECT_EQ(two.name(), "tp");
    EXPECT_EQ(two.rank(), communicator.rank() % 2);
    const at::Tensor mine = at::full({3}, communicator.rank(), at::kLong);
    two.all_reduce({mine}, Reduction::sum, "pair");
    EXPECT_EQ(mine[0].item<std::int64_t>(), 2 * pair + 1);
    const at::Tensor all = at::full({3}, communicator.rank(), at::kLong);
    communicator.group({mesh::Axis::tp}).all_reduce({all}, Reduction::sum, "all");
    EXPECT_EQ(all[0].item<std::int64_t>(), 15);
  });
}

}  // namespace
}  // namespace ndmesh::comm
