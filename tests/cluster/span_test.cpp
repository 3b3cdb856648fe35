#include <gmock/gmock.h>

#include <map>
#include <set>
#include <stdexcept>

#include "ndmesh/cluster/cluster.h"

namespace ndmesh::cluster {
namespace {

using testing::ElementsAre;

/// The definition, group by group and rank by rank: groups are the ranks that agree on everything but the extents.
Span span_by_definition(const Cluster& cluster, const std::vector<Extent>& extents) {
  const auto group_of = [&](std::int64_t rank) {
    for (const Extent& extent : extents) rank -= rank / extent.stride % extent.size * extent.stride;
    return rank;
  };
  std::map<std::int64_t, std::vector<std::int64_t>> groups;
  for (std::int64_t rank = 0; rank < cluster.devices(); ++rank) groups[group_of(rank)].push_back(rank);

  Span span;
  for (const Extent& extent : extents) span.ranks *= extent.size;
  for (const Level& level : cluster.levels) {
    std::int64_t fewest = span.ranks;
    std::size_t most = 0;
    for (const auto& [first, ranks] : groups) {
      if (static_cast<std::int64_t>(ranks.size()) != span.ranks) continue;  // the world ends inside the group
      std::map<std::int64_t, std::int64_t> members;
      for (const std::int64_t rank : ranks) ++members[rank / level.devices];
      for (const auto& [domain, number] : members) fewest = std::min(fewest, number);
      most = std::max(most, members.size());
    }
    span.members.push_back(fewest);
    span.domains.push_back(static_cast<std::int64_t>(most));
    if (most > 1) ++span.level;
  }
  return span;
}

Cluster cluster_of(const std::string& yaml) {
  return parse_cluster(yaml, "test");
}

TEST(Span, RanksOfOneNodeAndOfTwo) {
  const Cluster cluster = cluster_of("4x8xH100-SXM");
  const Span node = span_of(cluster, {{8, 1}});
  EXPECT_EQ(node.level, 0U);
  EXPECT_THAT(node.members, ElementsAre(8, 8));
  EXPECT_THAT(node.domains, ElementsAre(1, 1));

  const Span two = span_of(cluster, {{16, 1}});
  EXPECT_EQ(two.level, 1U);
  EXPECT_THAT(two.members, ElementsAre(8, 16));
  EXPECT_THAT(two.domains, ElementsAre(2, 1));
}

TEST(Span, StridedGroupsCrossEarlier) {
  const Cluster cluster = cluster_of("4x8xH100-SXM");
  // dp over tp = 8: one rank in each node.
  EXPECT_THAT(span_of(cluster, {{4, 8}}).members, ElementsAre(1, 4));
  EXPECT_THAT(span_of(cluster, {{4, 8}}).domains, ElementsAre(4, 1));
  // dp over tp = 4: two ranks in each of four nodes; over tp = 2, all in one node.
  EXPECT_THAT(span_of(cluster, {{8, 4}}).members, ElementsAre(2, 8));
  EXPECT_EQ(span_of(cluster, {{4, 2}}).level, 0U);
  // tp and pp together, dp between them.
  EXPECT_THAT(span_of(cluster, {{2, 1}, {4, 8}}).members, ElementsAre(2, 8));
  EXPECT_THAT(span_of(cluster, {{4, 8}, {2, 1}}).members, ElementsAre(2, 8));
}

TEST(Span, AGroupThatDoesNotDivideTheNodeIsAsSlowAsItsSmallestPart) {
  const Cluster cluster = cluster_of("3x8xH100-SXM");
  // {0..11} has 8 + 4, {12..23} has 4 + 8.
  EXPECT_THAT(span_of(cluster, {{12, 1}}).members, ElementsAre(4, 12));
  EXPECT_THAT(span_of(cluster, {{12, 1}}).domains, ElementsAre(2, 1));
  // {6..11} has 2 + 4.
  EXPECT_THAT(span_of(cluster, {{6, 1}}).members, ElementsAre(2, 6));
}

TEST(Span, AGroupMayEndBeforeItsBlockDoes) {
  // {0, 4, 8} of 10 devices in nodes of 5.
  EXPECT_THAT(span_of(cluster_of("2x5xH100-SXM"), {{3, 4}}).members, ElementsAre(1, 3));
  EXPECT_THAT(span_of(cluster_of("5xH100-SXM"), {{3, 2}}).members, ElementsAre(3));
}

TEST(Span, OneRankCrossesNothing) {
  const Span span = span_of(cluster_of("2x8xH100-SXM"), {});
  EXPECT_EQ(span.ranks, 1);
  EXPECT_EQ(span.level, 0U);
  EXPECT_THAT(span.members, ElementsAre(1, 1));
  EXPECT_THAT(span_of(cluster_of("H100-SXM"), {{1, 1}}).members, ElementsAre(1));
}

TEST(Span, AgreesWithTheDefinition) {
  const std::vector<std::string> clusters = {
      "8xA100-SXM",
      "3x8xH100-SXM",
      "5x6xH100-SXM",
      "25x4xGB200",
      "{nodes: 6, node: 12xL40S, pcie: {devices: 4}}",
      "{nodes: 12, node: 8xA100-PCIe, scale_up: {devices: 2}, numa: {nodes: 2, bandwidth: 20GB/s}, switches: "
      "[{nodes: 3}, {nodes: 6}, {oversubscription: 2}]}"};
  const std::vector<std::int64_t> sizes = {1, 2, 3, 4, 5, 6, 8, 12};
  std::int64_t compared = 0;
  for (const std::string& text : clusters) {
    const Cluster cluster = cluster_of(text);
    for (const std::int64_t inner : sizes)
      for (const std::int64_t first : sizes)
        for (const std::int64_t between : sizes)
          for (const std::int64_t second : {1, 2, 3, 4, 7}) {
            const std::vector<Extent> extents = {{first, inner}, {second, inner * first * between}};
            if (inner * first * between * second > cluster.devices()) continue;
            const Span expected = span_by_definition(cluster, extents);
            const Span span = span_of(cluster, extents);
            ASSERT_EQ(span.members, expected.members)
                << text << inner << ' ' << first << ' ' << between << ' ' << second;
            ASSERT_EQ(span.domains, expected.domains) << text;
            ASSERT_EQ(span.level, expected.level) << text;
            ASSERT_EQ(span.ranks, expected.ranks);
            ++compared;
          }
  }
  EXPECT_GT(compared, 3000);
}

TEST(Span, ExtentsThatAreNoneOfAMeshAreAFault) {
  const Cluster cluster = cluster_of("2x8xH100-SXM");
  EXPECT_THROW(span_of(cluster, {{32, 1}}), std::invalid_argument);
  EXPECT_THROW(span_of(cluster, {{4, 1}, {2, 2}}), std::invalid_argument);
  EXPECT_THROW(span_of(cluster, {{5, 4}}), std::invalid_argument);
  EXPECT_THROW(span_of(cluster, {{4, 1}, {4, 5}}), std::invalid_argument);
  EXPECT_THROW(span_of(cluster_of("5xH100-SXM"), {{2, 1}, {3, 2}}), std::invalid_argument);
  EXPECT_THROW(span_of(cluster, {{std::int64_t{1} << 62, 4}}), std::invalid_argument);
  EXPECT_THROW(span_of(cluster, {{0, 1}}), std::invalid_argument);
  EXPECT_THROW(span_of(cluster, {{2, 0}}), std::invalid_argument);
}

}  // namespace
}  // namespace ndmesh::cluster
