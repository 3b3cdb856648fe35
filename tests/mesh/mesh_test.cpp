#include "ndmesh/mesh/mesh.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <random>

#include "mesh/golden.h"
#include "ndmesh/base/error.h"

namespace ndmesh::mesh {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Groups = std::vector<std::vector<std::int64_t>>;

constexpr AxisSet model_axes = {Axis::tp, Axis::pp};

AxisSet axes_from(const std::string& name) {
  if (name == "batch") return batch_axes;
  if (name == "shard") return shard_axes;
  if (name == "loss") return loss_axes;
  if (name == "model") return model_axes;
  return {axis_from_name(name).value()};
}

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const RequestError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Mesh, GoldenDenseView) {
  const nlohmann::json entries = test::golden("golden_groups.json")["dense"];
  ASSERT_EQ(entries.size(), 16u);
  for (const auto& entry : entries) {
    SCOPED_TRACE(entry["mesh"].dump() + entry["order"].dump());
    const AxisOrder order = parse_order(entry["order"]);
    const Mesh mesh(test::sizes_from(entry["mesh"]), order);
    ASSERT_EQ(mesh.world(), entry["world"]);
    for (std::int64_t rank = 0; rank < mesh.world(); ++rank) {
      const std::vector<std::int64_t> expected = entry["coordinates"][static_cast<std::size_t>(rank)];
      for (std::size_t i = 0; i < axis_count; ++i) EXPECT_EQ(mesh.coordinate(rank, order[i]), expected[i]);
    }
    for (const auto& [name, groups] : entry["groups"].items()) {
      EXPECT_EQ(mesh.groups(axes_from(name)), groups.get<Groups>()) << name;
    }
  }
}

TEST(Mesh, GoldenExpertView) {
  const nlohmann::json entries = test::golden("golden_groups.json")["expert_folded"];
  ASSERT_EQ(entries.size(), 6u);
  for (const auto& entry : entries) {
    SCOPED_TRACE(entry["mesh"].dump());
    const Mesh mesh(test::sizes_from(entry["mesh"]));
    ASSERT_EQ(mesh.world(), entry["world"]);
    EXPECT_EQ(mesh.size(ExpertAxis::edp), entry["edp_size"]);
    for (std::int64_t rank = 0; rank < mesh.world(); ++rank) {
      const std::vector<std::int64_t> expected = entry["coordinates"][static_cast<std::size_t>(rank)];
      for (const ExpertAxis axis : all_expert_axes) {
        EXPECT_EQ(mesh.coordinate(rank, axis), expected[static_cast<std::size_t>(axis)]);
      }
      EXPECT_EQ(mesh.coordinate(rank, Axis::pp), expected[3]);
    }
    for (const ExpertAxis axis : all_expert_axes) {
      EXPECT_EQ(mesh.groups(axis), entry["groups"][std::string(name_of(axis))].get<Groups>())
          << name_of(axis);
    }
  }
}

TEST(Mesh, ExpertViewCountsTpFastestInAnyOrder) {
  MeshSizes sizes{.tp = 2, .dp_shard = 2};
  sizes.ep = 2;
  const Mesh mesh(sizes, parse_order({"dp_shard", "tp", "cp", "dp_replicate", "pp"}));
  // Ranks 0 and 2 are the tp pair of dp_shard 0, so they are an ep group.
  EXPECT_THAT(mesh.groups(ExpertAxis::ep), ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3)));
  EXPECT_THAT(mesh.groups(ExpertAxis::edp), ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
}

// For random sizes and orders: coordinates and ranks invert each other, groups partition the ranks, and a
// group is exactly the ranks that agree on all other axes, found here by comparing coordinates.
TEST(Mesh, GroupsAreTheRanksThatDifferOnlyInTheirAxes) {
  std::mt19937 random(7);
  for (int round = 0; round < 60; ++round) {
    MeshSizes sizes;
    AxisOrder order = default_order;
    std::shuffle(order.begin(), order.end(), random);
    for (const Axis axis : all_axes) sizes.size(axis) = 1 + static_cast<std::int64_t>(random() % 3);
    AxisSet axes;
    for (const Axis axis : all_axes) axes = random() % 2 == 0 ? axes.with(axis) : axes;
    const Mesh mesh(sizes, order);
    for (std::int64_t rank = 0; rank < mesh.world(); ++rank) {
      EXPECT_EQ(mesh.rank_of(mesh.coordinates(rank)), rank);
      std::vector<std::int64_t> expected;
      for (std::int64_t other = 0; other < mesh.world(); ++other) {
        const bool agrees = std::all_of(all_axes.begin(), all_axes.end(), [&](Axis axis) {
          return axes.contains(axis) || mesh.coordinate(rank, axis) == mesh.coordinate(other, axis);
        });
        if (agrees) expected.push_back(other);
      }
      const std::vector<std::int64_t> group = mesh.group(rank, axes);
      ASSERT_EQ(group, expected) << sizes.name() << " over " << axes.name();
      EXPECT_EQ(group[static_cast<std::size_t>(mesh.index_in(rank, axes))], rank);
      EXPECT_EQ(static_cast<std::int64_t>(group.size()), mesh.size(axes));
    }
  }
}

TEST(Mesh, LargeMeshesAreCheap) {
  const Mesh mesh(MeshSizes{.tp = 8, .cp = 16, .dp_shard = 64, .dp_replicate = 16, .pp = 16});
  EXPECT_EQ(mesh.world(), 2'097'152);
  EXPECT_EQ(mesh.group(mesh.world() - 1, {Axis::pp}).front(), 131'071);
  EXPECT_EQ(Mesh(MeshSizes{.dp_replicate = 2'147'483'647}).world(), 2'147'483'647);
}

TEST(Mesh, RefusesImpossibleSizesAllAtOnce) {
  MeshSizes sizes{.tp = 0, .pp = -3};
  sizes.etp = 0;
  try {
    const Mesh mesh(sizes);
    FAIL() << "accepted";
  } catch (const RequestError& error) {
    EXPECT_THAT(error.problems(), ElementsAre("mesh.tp_size: 0 is not allowed; the least is 1",
                                              "mesh.pp_size: -3 is not allowed; the least is 1",
                                              "mesh.etp_size: 0 is not allowed; the least is 1"));
  }
}

TEST(Mesh, RefusesTooManyRanks) {
  EXPECT_THAT(message_of([] { Mesh(MeshSizes{.tp = 2, .dp_shard = 1'073'741'824}); }),
              HasSubstr("2147483647"));
  // A product that wraps to 0 in 64 bits.
  EXPECT_THROW(Mesh(MeshSizes{.tp = 1LL << 32, .dp_shard = 1LL << 32}), RequestError);
}

TEST(Mesh, RefusesExpertSizesThatDoNotFold) {
  MeshSizes sizes{.dp_shard = 4};
  sizes.ep = 3;
  EXPECT_THAT(message_of([&] { const Mesh mesh(sizes); }),
              testing::AllOf(HasSubstr("mesh.ep_size 3"), HasSubstr("= 4")));
  sizes.ep = 1LL << 62;
  sizes.etp = 4;
  EXPECT_THROW(const Mesh mesh(sizes), RequestError);
}

TEST(Mesh, ExpertAxesNeedNoTpAxis) {
  MeshSizes sizes{.dp_shard = 4};
  sizes.ep = 4;
  const Mesh mesh(sizes);
  EXPECT_EQ(mesh.world(), 4);
  EXPECT_EQ(mesh.size(ExpertAxis::edp), 1);
  EXPECT_THAT(mesh.groups(ExpertAxis::ep), ElementsAre(ElementsAre(0, 1, 2, 3)));
}

}  // namespace
}  // namespace ndmesh::mesh
