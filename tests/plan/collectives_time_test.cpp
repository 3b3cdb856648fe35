#include <gtest/gtest.h>

#include "ndmesh/base/error.h"
#include "ndmesh/plan/time/collectives.h"
#include "plan/time_support.h"

namespace ndmesh::plan {
namespace {

using test::ideal;
using test::two_levels;

constexpr double bytes = 16060522496;  // an 8B model in 16 bits

double all_reduce(const cluster::Cluster& cluster, std::int64_t ranks, std::int64_t stride = 1) {
  const Collectives collectives(cluster, ideal(cluster));
  return collectives.all_reduce(collectives.group({{.size = ranks, .stride = stride}}), bytes);
}

// TIME-04: a ring moves 2 (n - 1) / n bytes through each rank.
TEST(CollectiveTime, RingInsideANode) {
  EXPECT_NEAR(all_reduce(two_levels(1, 8, 450e9, 0), 8), 62.46e-3, 0.01e-3);
}

// TIME-04: at least 2 (k - 1) / k of the bytes through a node's NICs, however many ranks the node has.
TEST(CollectiveTime, NodesShareTheirNics) {
  EXPECT_GE(all_reduce(two_levels(2, 8, 450e9, 25e9 / 8), 16), 0.642);
  EXPECT_GE(all_reduce(two_levels(2, 8, 450e9, 200e9 / 8), 16), 0.080);
  EXPECT_NEAR(all_reduce(two_levels(2, 8, 450e9, 200e9 / 8), 16), 2 * 15 / 16.0 * bytes / 200e9, 1e-6);
}

// TIME-04: many small collectives cost their latency.
TEST(CollectiveTime, SmallOnesCostTheirLatency) {
  const cluster::Cluster cluster = two_levels(1, 8, 450e9, 0);
  const Collectives collectives(cluster, constants_for(cluster, "megatron"));
  EXPECT_GE(186 * collectives.all_reduce(collectives.group({{.size = 8}}), 16384), 0.37e-3);
}

TEST(CollectiveTime, GatherAndScatterMoveHalfOfAReduction) {
  const cluster::Cluster cluster = two_levels(1, 8, 100e9, 0);
  const Collectives collectives(cluster, ideal(cluster));
  const GroupCost group = collectives.group({{.size = 8}});
  EXPECT_DOUBLE_EQ(collectives.all_gather(group, 8e9), 0.07);  // 7/8 of 8 GB at 100 GB/s
  EXPECT_DOUBLE_EQ(collectives.reduce_scatter(group, 8e9), 0.07);
  EXPECT_DOUBLE_EQ(collectives.all_to_all(group, 8e9), 0.07);
  EXPECT_DOUBLE_EQ(collectives.send(group, 8e9), 0.08);
}

TEST(CollectiveTime, BroadcastsInTurnPayTheWayOnceForEachRank) {
  cluster::Cluster cluster = two_levels(1, 8, 100e9, 0);
  cluster.levels[0].latency = 1e-6;
  const Collectives collectives(cluster, ideal(cluster));
  const GroupCost group = collectives.group({{.size = 8}});
  EXPECT_NEAR(collectives.broadcasts(group, 8e9), 0.08 + 8 * 3 * 3e-6, 1e-9);
}

// Of 16 ranks in two nodes, 8 of 16 parts cross a node's boundary.
TEST(CollectiveTime, AllToAllIsBoundByTheSlowerOfItsLevels) {
  const cluster::Cluster cluster = two_levels(2, 8, 400e9, 25e9);
  const Collectives collectives(cluster, ideal(cluster));
  const GroupCost group = collectives.group({{.size = 16}});
  EXPECT_DOUBLE_EQ(collectives.all_to_all(group, 16e9), 8e9 / 25e9);
}

TEST(CollectiveTime, OneRankTalksToNobody) {
  const cluster::Cluster cluster = two_levels(1, 8, 450e9, 0);
  const Collectives collectives(cluster, constants_for(cluster, "megatron"));
  const GroupCost alone = collectives.group(std::vector<cluster::Extent>{});
  EXPECT_EQ(collectives.all_reduce(alone, bytes), 0);
  EXPECT_EQ(collectives.all_gather(alone, bytes), 0);
  EXPECT_EQ(collectives.all_to_all(alone, bytes), 0);
  EXPECT_EQ(collectives.send(alone, bytes), 0);
}

// The same 8 ranks in one node, over two, four and eight.
TEST(CollectiveTime, SpreadingAGroupNeverMakesItFaster) {
  for (const double size : {1e3, 1e5, 1e7, 1e9}) {
    double before = 0;
    for (const std::int64_t nodes : {1, 2, 4, 8}) {
      cluster::Cluster cluster = two_levels(8, 8, 300e9, 25e9);
      cluster.levels[0].latency = 1e-6;
      cluster.levels[1].latency = 5e-6;
      const Collectives collectives(cluster, constants_for(cluster, "megatron"));
      std::vector<cluster::Extent> extents;
      if (nodes < 8) {
        extents.push_back({.size = 8 / nodes, .stride = 1});
      }
      if (nodes > 1) {
        extents.push_back({.size = nodes, .stride = 8});
      }
      const double seconds = collectives.all_reduce(collectives.group(extents), size);
      EXPECT_GE(seconds, before) << size << " bytes over " << nodes << " nodes";
      before = seconds;
    }
  }
}

TEST(CollectiveTime, MoreBandwidthIsNeverSlower) {
  double before = 1e9;
  for (const double outer : {5e9, 10e9, 25e9, 50e9, 400e9}) {
    const double seconds = all_reduce(two_levels(4, 8, 300e9, outer), 32);
    EXPECT_LE(seconds, before);
    before = seconds;
  }
}

// A group whose ranks sit one in each node has one device's share of the NICs.
TEST(CollectiveTime, GroupsThatCrossTogetherShareTheNode) {
  const cluster::Cluster cluster = two_levels(4, 8, 300e9, 25e9);
  EXPECT_NEAR(all_reduce(cluster, 4, 8), 2 * 3 / 4.0 * bytes / 25e9, 1e-6);
}

TEST(CollectiveTime, AMeshOfPairsIsSlowForFewRanks) {
  cluster::Cluster cluster = two_levels(1, 8, 448e9, 0);
  cluster.levels[0].pair_bandwidth = 64e9;
  EXPECT_NEAR(all_reduce(cluster, 2), bytes / 64e9, 1e-6);
  EXPECT_NEAR(all_reduce(cluster, 8), 2 * 7 / 8.0 * bytes / 448e9, 1e-6);
}

TEST(CollectiveTime, UnknownBandwidthIsRefused) {
  const cluster::Cluster cluster = two_levels(2, 8, 450e9, 0);
  EXPECT_THROW(Collectives(cluster, ideal(cluster)), RequestError);
}

}  // namespace
}  // namespace ndmesh::plan
