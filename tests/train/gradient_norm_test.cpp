#include "ndmesh/train/gradient_norm.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace ndmesh::train {
namespace {

using layout::Placement;

parallel::Trainable trainable(const std::string& name, const mesh::Mesh& mesh, std::int64_t rank,
                              bool sharded, double gradient) {
  std::vector<Placement> placements;
  if (sharded) {
    placements.push_back(Placement::shard(mesh::shard_axes, 0));
  }
  layout::TensorLayout layout({5, 2}, placements, mesh);
  const at::Tensor value = at::full(layout.local_shape(rank), gradient, at::kFloat);
  return {{name, std::move(layout), value}, value.clone(), true};
}

TEST(GradientNorm, EachElementCountsOnceWhateverTheMesh) {
  // Two matrices of ten elements, gradients 3 and 4: the norm is sqrt(10 * 9 + 10 * 16).
  for (const mesh::MeshSizes& sizes : {mesh::MeshSizes{},
                                       {.dp_replicate = 3},
                                       {.dp_shard = 3},
                                       {.dp_shard = 2, .dp_replicate = 2},
                                       {.dp_shard = 7}}) {
    const mesh::Mesh mesh(sizes);
    comm::run_ranks(mesh, {}, [&](comm::Communicator& communicator) {
      const std::int64_t rank = communicator.rank();
      const std::vector<parallel::Trainable> list = {trainable("a", mesh, rank, sizes.dp_shard > 1, 3),
                                                     trainable("b", mesh, rank, false, 4)};
      EXPECT_DOUBLE_EQ(global_gradient_norm(list, communicator), std::sqrt(250.0)) << sizes.name();
    });
  }
}

/// Own norms 3 and 4 on two ranks: one norm of 5, and one factor.
TEST(GradientNorm, PartsAreClippedByTheNormOfTheWhole) {
  const mesh::Mesh mesh({.dp_shard = 2});
  comm::run_ranks(mesh, {}, [&](comm::Communicator& communicator) {
    const std::int64_t rank = communicator.rank();
    parallel::Trainable part = trainable("a", mesh, rank, true, 0);  // 3 rows and 2
    part.gradient[0][1] = rank == 0 ? 3.0 : -4.0;
    const double norm = global_gradient_norm({part}, communicator);
    EXPECT_DOUBLE_EQ(norm, 5.0);
    EXPECT_NEAR(clip_factor(norm, 1.0), 0.2, 1e-6);
  });
}

TEST(GradientNorm, ClippingScalesDownOnly) {
  EXPECT_NEAR(clip_factor(5.0, 1.0), 0.2, 1e-6);
  EXPECT_DOUBLE_EQ(clip_factor(0.5, 1.0), 1.0);
  EXPECT_DOUBLE_EQ(clip_factor(5.0, 0.0), 1.0);
}

TEST(GradientNorm, BadGradientIsNamedByRankOnEveryRank) {
  const mesh::Mesh mesh({.dp_shard = 2});
  comm::run_ranks(mesh, {}, [&](comm::Communicator& communicator) {
    std::vector<parallel::Trainable> list = {trainable("fine", mesh, communicator.rank(), true, 1),
                                             trainable("spoilt", mesh, communicator.rank(), true, 1)};
    if (communicator.rank() == 1) {
      list[1].gradient[0][0] = std::numeric_limits<float>::quiet_NaN();
    }
    EXPECT_FALSE(std::isfinite(global_gradient_norm(list, communicator)));
    EXPECT_EQ(describe_bad_gradient(list, communicator), "rank 1: spoilt");
  });
}

}  // namespace
}  // namespace ndmesh::train
