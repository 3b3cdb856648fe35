#include <gmock/gmock.h>

#include "mesh/golden.h"
#include "ndmesh/base/error.h"
#include "ndmesh/layout/layout.h"

namespace ndmesh::layout {
namespace {

using mesh::Axis;
using mesh::AxisSet;
using mesh::Mesh;
using mesh::MeshSizes;
using testing::ElementsAre;
using testing::HasSubstr;

/// What the entries of golden_boxes.json describe in words.
std::vector<Placement> placements_of(const std::string& name) {
  const AxisSet tp = {Axis::tp};
  if (name == "column" || name == "column-uneven") return {Placement::shard(tp, 0)};
  if (name == "row") return {Placement::shard(tp, 1)};
  if (name == "k-proj-replicated-heads") return {Placement::shared(tp, 0, 2)};
  if (name == "fused-qkv") return {Placement::pieces(tp, 0, {{96, 6}, {32, 2}, {32, 2}})};
  if (name == "fused-gate-up") return {Placement::pieces(tp, 0, {{130, 0}, {130, 0}})};
  if (name == "vocabulary-padded") return {Placement::padded(tp, 0, 2)};
  if (name == "sharded" || name == "sharded-empty" || name == "sharded-over-cp") {
    return {Placement::shard(mesh::shard_axes, 0)};
  }
  if (name == "sharded-on-column") return {Placement::shard(tp, 0), Placement::shard(mesh::shard_axes, 0)};
  if (name == "sharded-on-row") return {Placement::shard(tp, 1), Placement::shard(mesh::shard_axes, 0)};
  if (name == "zigzag") return {Placement::zigzag({Axis::cp}, 1)};
  if (name == "batch-and-sequence")
    return {Placement::shard(mesh::batch_axes, 0), Placement::zigzag({Axis::cp}, 1)};
  ADD_FAILURE() << "no placements for " << name;
  return {};
}

Box box_from(const nlohmann::json& ranges) {
  Box box;
  for (const auto& range : ranges) box.push_back({range[0], range[1]});
  return box;
}

TEST(TensorLayout, GoldenBoxes) {
  const nlohmann::json entries = test::golden("golden_boxes.json");
  ASSERT_EQ(entries.size(), 14u);
  for (const auto& entry : entries) {
    SCOPED_TRACE(entry["name"].get<std::string>() + ": " + entry["why"].get<std::string>());
    const Mesh mesh(test::sizes_from(entry["mesh"]));
    const TensorLayout layout(entry["shape"], placements_of(entry["name"]), mesh);
    ASSERT_EQ(static_cast<std::int64_t>(entry["boxes"].size()), mesh.world());
    for (std::int64_t rank = 0; rank < mesh.world(); ++rank) {
      std::vector<Box> expected;
      for (const auto& box : entry["boxes"][static_cast<std::size_t>(rank)])
        expected.push_back(box_from(box));
      EXPECT_EQ(layout.boxes(rank), expected) << "rank " << rank;
    }
  }
}

TEST(TensorLayout, SplitPutsLargerPartsFirst) {
  EXPECT_EQ(split(10, 4, 0), (Range{0, 3}));
  EXPECT_EQ(split(10, 4, 3), (Range{8, 2}));
  EXPECT_EQ(split(3, 5, 4), (Range{3, 0}));
  const std::int64_t huge = std::int64_t{1} << 62;
  EXPECT_EQ(split(huge, 4096, 4095), (Range{huge - huge / 4096, huge / 4096}));
}

TEST(TensorLayout, PaddingLiesBehindTheRealRowsAndIsCutWithThem) {
  const Mesh mesh(MeshSizes{.tp = 4, .dp_shard = 2});
  // 257 rows padded to 512: tp parts of 128; the third holds 1 real row, the fourth none.
  const TensorLayout layout(
      {257, 3}, {Placement::padded({Axis::tp}, 0, 512), Placement::shard({Axis::dp_shard}, 0)}, mesh);
  EXPECT_THAT(layout.boxes(2), ElementsAre(Box{{256, 1}, {0, 3}}));
  EXPECT_THAT(layout.boxes(3), ElementsAre(Box{{257, 0}, {0, 3}}));
  EXPECT_THAT(layout.boxes(6), ElementsAre(Box{{257, 0}, {0, 3}}));
  EXPECT_THAT(layout.boxes(5), ElementsAre(Box{{192, 64}, {0, 3}}));
  for (std::int64_t rank = 0; rank < 8; ++rank)
    EXPECT_THAT(layout.padded_local_shape(rank), ElementsAre(64, 3));
  EXPECT_THAT(layout.local_shape(2), ElementsAre(1, 3));
}

TEST(TensorLayout, PaddedAlsoRoundsToTheRanks) {
  const Mesh mesh(MeshSizes{.tp = 6});
  const TensorLayout layout({151552}, {Placement::padded({Axis::tp}, 0, 128)}, mesh);
  EXPECT_EQ(layout.padded_local_elements(0) * 6, 151680);  // the least multiple of both 128 and 6
}

TEST(TensorLayout, ShardFollowsTheOrderOfTheMesh) {
  const Mesh mesh(MeshSizes{.cp = 2, .dp_shard = 2},
                  {Axis::dp_shard, Axis::cp, Axis::tp, Axis::dp_replicate, Axis::pp});
  const TensorLayout layout({4}, {Placement::shard(mesh::shard_axes, 0)}, mesh);
  for (std::int64_t rank = 0; rank < 4; ++rank) EXPECT_THAT(layout.boxes(rank), ElementsAre(Box{{rank, 1}}));
}

TEST(TensorLayout, SequenceParallelCutsWhatZigzagLeft) {
  const Mesh mesh(MeshSizes{.tp = 2, .cp = 2});
  const TensorLayout layout({16}, {Placement::zigzag({Axis::cp}, 0), Placement::shard({Axis::tp}, 0)}, mesh);
  EXPECT_THAT(layout.boxes(0), ElementsAre(Box{{0, 4}}));
  EXPECT_THAT(layout.boxes(1), ElementsAre(Box{{12, 4}}));
  EXPECT_THAT(layout.boxes(2), ElementsAre(Box{{4, 4}}));
  EXPECT_THAT(layout.boxes(3), ElementsAre(Box{{8, 4}}));
}

TEST(TensorLayout, ZigzagBalancesCausalWork) {
  // Query-key pairs of 16 tokens on 4 ranks, counted pair by pair: 34 on each, against 10, 26, 42, 58 when
  // contiguous.
  const Mesh mesh(MeshSizes{.cp = 4});
  const TensorLayout layout({16}, {Placement::zigzag({Axis::cp}, 0)}, mesh);
  for (std::int64_t rank = 0; rank < 4; ++rank) {
    std::int64_t pairs = 0;
    for (const Box& box : layout.boxes(rank)) {
      for (std::int64_t q = box[0].start; q < box[0].start + box[0].size; ++q) pairs += q + 1;
    }
    EXPECT_EQ(pairs, 34);
  }
  // 131072 tokens on 8 ranks: every rank has the mean; the last of contiguous parts would have 1.875 times it.
  const std::int64_t tokens = 131072;
  const Mesh eight(MeshSizes{.cp = 8});
  const TensorLayout paired({tokens}, {Placement::zigzag({Axis::cp}, 0)}, eight);
  const TensorLayout contiguous({tokens}, {Placement::shard({Axis::cp}, 0)}, eight);
  const auto pairs_of = [](const std::vector<Box>& boxes) {
    std::int64_t pairs = 0;
    for (const Box& box : boxes) pairs += box[0].size * (2 * box[0].start + box[0].size + 1) / 2;
    return pairs;
  };
  for (std::int64_t rank = 0; rank < 8; ++rank) EXPECT_EQ(pairs_of(paired.boxes(rank)), 1073750016);
  EXPECT_EQ(pairs_of(contiguous.boxes(7)), 2013274112);
}

TEST(TensorLayout, CopiesAndCutAxes) {
  const Mesh mesh(MeshSizes{.tp = 4, .dp_shard = 2, .dp_replicate = 3});
  const AxisSet tp = {Axis::tp};
  const AxisSet everywhere = {Axis::tp, Axis::dp_shard, Axis::dp_replicate};
  const TensorLayout column({8, 4}, {Placement::shard(tp, 0), Placement::shard({Axis::dp_shard}, 0)}, mesh);
  EXPECT_EQ(column.cut_axes(), (AxisSet{Axis::tp, Axis::dp_shard}));
  EXPECT_EQ(column.copies(0, everywhere), 3);
  EXPECT_EQ(column.copies(5, tp), 1);
  const TensorLayout norm({8}, {Placement::replicate(tp), Placement::shard({Axis::dp_shard}, 0)}, mesh);
  EXPECT_EQ(norm.cut_axes(), (AxisSet{Axis::dp_shard}));
  EXPECT_EQ(norm.copies(0, everywhere), 12);
  const TensorLayout keys({8, 4}, {Placement::shared(tp, 0, 2)}, mesh);
  EXPECT_EQ(keys.cut_axes(), tp);
  EXPECT_EQ(keys.copies(0, tp), 2);
  EXPECT_EQ(keys.copies(3, everywhere), 12);
  const TensorLayout one_key_head({8, 4}, {Placement::shared(tp, 0, 1)}, mesh);
  EXPECT_EQ(one_key_head.cut_axes(), AxisSet{});
  EXPECT_EQ(one_key_head.copies(0, tp), 4);
}

TEST(TensorLayout, FusedBoxesDifferInTheirCopies) {
  const Mesh mesh(MeshSizes{.tp = 4});
  const AxisSet tp = {Axis::tp};
  const TensorLayout fused({16, 4}, {Placement::pieces(tp, 0, {{8, 4}, {4, 2}, {4, 2}})}, mesh);
  EXPECT_THAT(fused.box_copies(1, tp), ElementsAre(1, 2, 2));
  EXPECT_EQ(fused.cut_axes(), tp);
  EXPECT_THROW(fused.copies(1, tp), std::logic_error);
}

TEST(TensorLayout, SixtyFourBitSizes) {
  const Mesh mesh(MeshSizes{.tp = 2, .dp_shard = 3});
  for (const auto& [rows, total] : {std::pair{42730LL, 2147481610LL}, std::pair{42731LL, 2147531867LL}}) {
    const TensorLayout layout({rows, 50257}, {Placement::shard({Axis::dp_shard}, 0)}, mesh);
    EXPECT_EQ(layout.local_elements(0) + layout.local_elements(2) + layout.local_elements(4), total);
  }
  const TensorLayout large({65536, 50257}, {Placement::shard({Axis::tp}, 1)}, mesh);
  EXPECT_EQ(4 * (large.local_elements(0) + large.local_elements(1)), 13174571008LL);
}

TEST(TensorLayout, BytesOfCollectives) {
  EXPECT_EQ(all_gather_bytes(800, 8), 700);
  EXPECT_EQ(reduce_scatter_bytes(800, 8), 700);
  EXPECT_EQ(all_reduce_bytes(800, 8), 1400);
  EXPECT_EQ(all_gather_bytes(800, 1), 0);
  EXPECT_EQ(all_gather_bytes(10, 4), 8);  // the rank with the smallest part, 2, receives most
  // 8,030,261,248 parameters in bfloat16 over 8 ranks.
  EXPECT_EQ(all_reduce_bytes(16060522496, 8), 28105914368);
}

struct Refusal {
  Shape shape;
  std::vector<Placement> placements;
  std::string message;
};

TEST(TensorLayout, RefusesImpossiblePlacements) {
  const AxisSet tp = {Axis::tp};
  const AxisSet dp = {Axis::dp_shard};
  const Mesh mesh(MeshSizes{.tp = 4, .dp_shard = 2});
  const std::vector<Refusal> refusals = {
      {{8},
       {Placement::shard(tp, 0), Placement::shard({Axis::tp, Axis::cp}, 0)},
       "tp is named by two placements"},
      {{8}, {Placement::shard(tp, 1)}, "there is no dim 1; dims are 0 to 0"},
      {{8}, {Placement::shard(tp, -1)}, "there is no dim -1"},
      {{8},
       {Placement::pieces(tp, 0, {{4, 0}, {3, 0}})},
       "segments of 7 indices in all do not add up to the 8"},
      {{8}, {Placement::pieces(tp, 0, {{-4, 0}, {12, 0}})}, "a segment of -4 indices"},
      {{18}, {Placement::pieces(tp, 0, {{10, 0}, {8, 2}})}, "a segment of 10 indices beside shared ones"},
      {{8}, {Placement::shared(tp, 0, 3)}, "8 indices of dim 0 are not 3 equal units"},
      {{9}, {Placement::shared(tp, 0, 3)}, "3 units neither divide nor are divided by the 4 ranks of tp"},
      {{8}, {Placement::shared(tp, 0, 0)}, "not 0 equal units"},
      {{8}, {Placement::padded(tp, 0, 0)}, "multiple of 0"},
      {{8},
       {Placement::shard(dp, 0), Placement::padded(tp, 0, 4)},
       "must be the first placement that cuts dim 0"},
      {{8}, {Placement::shard(dp, 0), Placement::shared(tp, 0, 4)}, "must be the first"},
      {{8}, {Placement::shard(dp, 0), Placement::pieces(tp, 0, {{8, 0}})}, "must be the first"},
      {{8, 8}, {Placement::zigzag(tp, 0), Placement::zigzag(dp, 1)}, "dims 0 and 1 are both cut into pieces"},
      {{-8}, {}, "size -8 is negative"},
      {{1LL << 32, 1LL << 31}, {}, "more than 2^63 - 1 elements"},
      {{(1LL << 62) + (1LL << 61), 1}, {Placement::padded(tp, 0, 2147483647)}, ""},
  };
  for (const Refusal& refusal : refusals) {
    try {
      const TensorLayout layout(refusal.shape, refusal.placements, mesh);
      EXPECT_EQ(refusal.message, "");
    } catch (const RequestError& error) {
      EXPECT_THAT(error.what(), HasSubstr(refusal.message));
    }
  }
}

TEST(TensorLayout, RefusalsComeTogether) {
  const Mesh mesh(MeshSizes{.tp = 4});
  try {
    const TensorLayout layout(
        {9, 9}, {Placement::shared({Axis::tp}, 0, 3), Placement::padded({Axis::cp}, 7, 1)}, mesh);
    FAIL() << "accepted";
  } catch (const RequestError& error) {
    EXPECT_EQ(error.problems().size(), 2u);
    EXPECT_THAT(error.problems()[1], HasSubstr("layout of [9, 9] on mesh tp=4: there is no dim 7"));
  }
}

}  // namespace
}  // namespace ndmesh::layout
