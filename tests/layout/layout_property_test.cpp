// Properties that hold for every layout, on random shapes, meshes and placements, checked element by element
// against counts made here.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "ndmesh/layout/layout.h"

namespace ndmesh::layout {
namespace {

using mesh::Axis;
using mesh::AxisSet;
using mesh::Mesh;

using Random = std::mt19937;

std::int64_t between(Random& random, std::int64_t least, std::int64_t most) {
  return std::uniform_int_distribution<std::int64_t>(least, most)(random);
}

Mesh random_mesh(Random& random) {
  mesh::MeshSizes sizes;
  mesh::AxisOrder order = mesh::default_order;
  std::shuffle(order.begin(), order.end(), random);
  for (const Axis axis : {Axis::tp, Axis::cp, Axis::dp_shard, Axis::dp_replicate}) {
    sizes.size(axis) = between(random, 1, 4);
  }
  return Mesh(sizes, order);
}

/// A number of units that divides, or is divided by, the ranks.
std::int64_t random_units(Random& random, std::int64_t ranks) {
  if (between(random, 0, 1) == 0) return ranks * between(random, 1, 3);
  std::int64_t units = between(random, 1, ranks);
  while (ranks % units != 0) --units;
  return units;
}

/// Sets the size of the dim that it cuts to one that fits.
Placement random_tp_placement(Random& random, const Mesh& mesh, Shape& shape) {
  const AxisSet tp = {Axis::tp};
  const std::int64_t ranks = mesh.size(Axis::tp);
  const std::int64_t dim = between(random, 0, 1);
  std::int64_t& size = shape[static_cast<std::size_t>(dim)];
  switch (between(random, 0, 5)) {
    case 0:
      return Placement::replicate(tp);
    case 1:
      return Placement::shard(tp, dim);
    case 2:
      return Placement::padded(tp, dim, between(random, 1, 5));
    case 3: {
      const std::int64_t units = random_units(random, ranks);
      size = units * between(random, 1, 3);
      return Placement::shared(tp, dim, units);
    }
    case 4:
      return Placement::zigzag(tp, dim);
    default:
      break;
  }
  const std::int64_t units = random_units(random, ranks);
  const std::vector<Placement::Segment> segments = {{ranks * between(random, 0, 3), 0},
                                                    {units * between(random, 1, 3), units},
                                                    {ranks * between(random, 1, 2), 0}};
  size = segments[0].size + segments[1].size + segments[2].size;
  return Placement::pieces(tp, dim, segments);
}

TensorLayout random_layout(Random& random) {
  const Mesh mesh = random_mesh(random);
  Shape shape = {between(random, 1, 17), between(random, 1, 9)};
  std::vector<Placement> placements = {random_tp_placement(random, mesh, shape)};
  if (between(random, 0, 3) > 0) {
    const AxisSet axes = between(random, 0, 1) == 0 ? mesh::shard_axes : AxisSet{Axis::dp_shard};
    placements.push_back(Placement::shard(axes, between(random, 0, 1)));
  }
  return TensorLayout(shape, placements, mesh);
}

/// Calls `visit` with the flat index in the global tensor of every element of a box, row by row.
template <class Visit>
void for_each_element(const Box& box, const Shape& shape, const Visit& visit) {
  for (std::int64_t row = box[0].start; row < box[0].start + box[0].size; ++row) {
    for (std::int64_t column = box[1].start; column < box[1].start + box[1].size; ++column) {
      visit(row * shape[1] + column);
    }
  }
}

TEST(LayoutProperty, EveryElementLivesAsOftenAsCopiesSays) {
  Random random(11);
  for (int round = 0; round < 400; ++round) {
    const TensorLayout layout = random_layout(random);
    const Mesh& mesh = layout.mesh();
    const Shape& shape = layout.shape();
    const AxisSet axes = {Axis::tp, Axis::cp, Axis::dp_shard, Axis::dp_replicate};
    std::vector<std::int64_t> held(static_cast<std::size_t>(shape[0] * shape[1]), 0);
    for (std::int64_t rank = 0; rank < mesh.world(); ++rank) {
      for (const Box& box : layout.boxes(rank)) {
        for_each_element(box, shape, [&](std::int64_t i) { ++held[static_cast<std::size_t>(i)]; });
      }
    }
    EXPECT_GE(*std::min_element(held.begin(), held.end()), 1) << "an element is held by nobody";
    for (std::int64_t rank = 0; rank < mesh.world(); ++rank) {
      const std::vector<Box> boxes = layout.boxes(rank);
      const std::vector<std::int64_t> copies = layout.box_copies(rank, axes);
      ASSERT_EQ(copies.size(), boxes.size());
      for (std::size_t b = 0; b < boxes.size(); ++b) {
        for_each_element(boxes[b], shape, [&](std::int64_t i) {
          ASSERT_EQ(held[static_cast<std::size_t>(i)], copies[b])
              << mesh.sizes().name() << " " << layout.placements()[0].describe();
        });
      }
    }
  }
}

TEST(LayoutProperty, LocalShapeIsTheConcatenationOfBoxes) {
  Random random(12);
  for (int round = 0; round < 400; ++round) {
    const TensorLayout layout = random_layout(random);
    for (std::int64_t rank = 0; rank < layout.mesh().world(); ++rank) {
      const std::vector<Box> boxes = layout.boxes(rank);
      ASSERT_GE(boxes.size(), 1u);
      std::int64_t total = 0;
      for (const Box& box : boxes) total += elements(box);
      const Shape local = layout.local_shape(rank);
      EXPECT_EQ(local[0] * local[1], total);
      EXPECT_EQ(layout.local_elements(rank), total);
      EXPECT_GE(layout.padded_local_elements(rank), total);
      if (boxes.size() > 1) {  // all but one dim are equal
        const bool same_rows =
            std::all_of(boxes.begin(), boxes.end(), [&](const Box& b) { return b[0] == boxes[0][0]; });
        const bool same_columns =
            std::all_of(boxes.begin(), boxes.end(), [&](const Box& b) { return b[1] == boxes[0][1]; });
        EXPECT_TRUE(same_rows || same_columns);
      }
    }
  }
}

// The squared norm of a whole tensor equals the sum over the cut axes of local ones, weighted by 1 / copies
// over them.
TEST(LayoutProperty, NormsOverCutAxesCountEachElementOnce) {
  Random random(13);
  for (int round = 0; round < 400; ++round) {
    const TensorLayout layout = random_layout(random);
    const Shape& shape = layout.shape();
    const AxisSet cut = layout.cut_axes();
    const std::int64_t somebody = between(random, 0, layout.mesh().world() - 1);
    double sum = 0;
    for (const std::int64_t rank : layout.mesh().group(somebody, cut)) {
      const std::vector<Box> boxes = layout.boxes(rank);
      const std::vector<std::int64_t> copies = layout.box_copies(rank, cut);
      for (std::size_t b = 0; b < boxes.size(); ++b) {
        for_each_element(boxes[b], shape, [&](std::int64_t i) {
          sum += static_cast<double>(i * i) / static_cast<double>(copies[b]);
        });
      }
    }
    const auto last = static_cast<double>(shape[0] * shape[1] - 1);
    EXPECT_NEAR(sum, last * (last + 1) * (2 * last + 1) / 6, 1e-6) << layout.placements()[0].describe();
  }
}

// Nested placements: cutting by dp_shard what tp left equals cutting the local tensor of tp, laid out by
// hand.
TEST(LayoutProperty, ShardsCutTheLocalTensorOfTp) {
  Random random(14);
  for (int round = 0; round < 200; ++round) {
    const Mesh mesh = random_mesh(random);
    Shape shape = {between(random, 1, 17), between(random, 1, 9)};
    const Placement tp = random_tp_placement(random, mesh, shape);
    if (tp.kind == Placement::Kind::padded) continue;  // shards then cut padded rows too
    const TensorLayout outer(shape, {tp}, mesh);
    const TensorLayout nested(shape, {tp, Placement::shard(mesh::shard_axes, 0)}, mesh);
    for (std::int64_t rank = 0; rank < mesh.world(); ++rank) {
      const auto rows_of = [&](const TensorLayout& layout) {
        std::vector<std::int64_t> rows;
        for (const Box& box : layout.boxes(rank)) {
          const bool first_columns = box[1].start == layout.boxes(rank)[0][1].start;
          for (std::int64_t r = 0; first_columns && r < box[0].size; ++r) rows.push_back(box[0].start + r);
        }
        return rows;
      };
      const std::vector<std::int64_t> all = rows_of(outer);
      const Range part = split(static_cast<std::int64_t>(all.size()), mesh.size(mesh::shard_axes),
                               mesh.index_in(rank, mesh::shard_axes));
      const std::vector<std::int64_t> expected(all.begin() + part.start,
                                               all.begin() + part.start + part.size);
      EXPECT_EQ(rows_of(nested), expected) << tp.describe();
    }
  }
}

// Values written from a function of the global index arrive whole: what initial values and checkpoints rely
// on. Columns cut by tp make strided slices.
TEST(LayoutProperty, SlicesMergeToTheOriginal) {
  const Mesh mesh(mesh::MeshSizes{.tp = 2, .dp_shard = 3});
  const Shape shape = {48, 96};
  const TensorLayout layout(shape, {Placement::shard({Axis::tp}, 1), Placement::shard({Axis::dp_shard}, 0)},
                            mesh);
  std::vector<std::int64_t> merged(48 * 96, -1);
  for (std::int64_t rank = 0; rank < mesh.world(); ++rank) {
    std::vector<std::int64_t> local;  // contiguous, row by row: exactly the elements of the slice
    for (const Box& box : layout.boxes(rank)) {
      for_each_element(box, shape, [&](std::int64_t i) { local.push_back(i); });
    }
    ASSERT_EQ(static_cast<std::int64_t>(local.size()), 48 * 96 / 6);
    const Box box = layout.boxes(rank).front();
    std::size_t next = 0;
    for_each_element(box, shape,
                     [&](std::int64_t i) { merged[static_cast<std::size_t>(i)] = local[next++]; });
  }
  std::vector<std::int64_t> original(48 * 96);
  std::iota(original.begin(), original.end(), 0);
  EXPECT_EQ(merged, original);
}

}  // namespace
}  // namespace ndmesh::layout
