// The model of examples/own_model, trained over meshes, against plain autograd and one rank.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "ndmesh/comm/world.h"
#include "ndmesh/parallel/fully_shard.h"
#include "ndmesh/parallel/recompute.h"
#include "ndmesh/parallel/replicate.h"
#include "ndmesh/train/adamw.h"
#include "ndmesh/train/gradient_norm.h"
#include "own_model/pairs.h"
#include "own_model/two_tower.h"

namespace ndmesh {
namespace {

using own_model::TwoTower;

constexpr std::int64_t batch = 12;
constexpr int steps = 4;
const own_model::Sizes sizes = {
    .vocabulary = 70, .hidden = 13, .wide = 29, .blocks = 2, .dtype = at::kDouble};

/// Losses and full gradients, before clipping, by step.
struct Trajectory {
  std::vector<double> losses;
  std::vector<std::vector<at::Tensor>> gradients;
};

struct Way {
  std::string name;
  mesh::MeshSizes mesh;
  bool recomputed = false;
  std::int64_t micro = batch;  ///< pairs of a forward at most
};

std::shared_ptr<parallel::DataParallel> lay_out(TwoTower& model, comm::Communicator& ranks, const Way& way) {
  for (const auto& block : model.blocks()) {
    if (way.recomputed) {
      parallel::recompute(*block, parallel::Recomputed::all);
    }
    if (way.mesh.dp_shard > 1) {
      parallel::fully_shard(*block, ranks);
    }
  }
  return way.mesh.dp_shard > 1 ? parallel::fully_shard(model, ranks)
                               : parallel::replicate(model, ranks, mesh::loss_axes);
}

at::Tensor loss_of(TwoTower& model, std::int64_t first, std::int64_t count) {
  const own_model::Pairs pairs = own_model::pairs(first, count, sizes.vocabulary, sizes.dtype);
  return own_model::loss_sum(model.forward(pairs.queries_BW, pairs.documents_BW), pairs.answers_B) *
         (1.0 / batch);
}

double forward_backward(TwoTower& model, parallel::DataParallel& layout, comm::Communicator& ranks,
                        const Way& way, std::int64_t first) {
  const layout::Range mine = layout::split(batch, ranks.world(), ranks.rank());
  double total = 0;
  for (std::int64_t done = 0; done < mine.size; done += way.micro) {
    const std::int64_t count = std::min(way.micro, mine.size - done);
    layout.begin_micro_batch(done + count == mine.size);
    const at::Tensor loss = loss_of(model, first + mine.start + done, count);
    total += loss.item<double>();
    loss.backward();
  }
  layout.finish_backward();
  const at::Tensor sum = at::full({1}, total, at::kDouble);
  ranks.everyone().all_reduce({sum}, comm::Reduction::sum, "loss");
  return sum.item<double>();
}

Trajectory train(const Way& way) {
  Trajectory result;
  comm::run_ranks(mesh::Mesh(way.mesh), {}, [&](comm::Communicator& ranks) {
    TwoTower model(sizes, /*seed=*/ranks.rank() == 0 ? 1 : 7);
    const auto layout = lay_out(model, ranks, way);
    train::AdamW optimizer({}, layout->trainables());
    Trajectory mine;
    for (int step = 0; step < steps; ++step) {
      mine.losses.push_back(forward_backward(model, *layout, ranks, way, step * batch));
      mine.gradients.emplace_back();
      for (const parallel::Trainable& trainable : layout->trainables()) {
        mine.gradients.back().push_back(layout->gather_gradient(trainable).clone());
      }
      const double norm = train::global_gradient_norm(layout->trainables(), ranks);
      optimizer.step(/*lr=*/1e-2, train::clip_factor(norm, /*most=*/0.1));
      layout->parameters_changed();
    }
    if (ranks.rank() == 0) {
      result = std::move(mine);
    }
  });
  return result;
}

void expect_near(const at::Tensor& actual, const at::Tensor& expected) {
  const double largest = expected.abs().max().item<double>();
  EXPECT_GT(largest, 0);
  EXPECT_LT((actual - expected).abs().max().item<double>(), 1e-10 * largest);
}

class OwnModel : public testing::TestWithParam<Way> {};

TEST_P(OwnModel, TrainsAsOnOneRank) {
  static const Trajectory one = train({"one", {}});
  const Trajectory other = train(GetParam());
  ASSERT_EQ(other.losses.size(), one.losses.size());
  for (std::size_t step = 0; step < one.losses.size(); ++step) {
    EXPECT_NEAR(other.losses[step], one.losses[step], 1e-12 * std::abs(one.losses[step]));
    for (std::size_t i = 0; i < one.gradients[step].size(); ++i) {
      expect_near(other.gradients[step][i], one.gradients[step][i]);
    }
  }
}

const std::vector<Way> ways = {{"dp_shard_2", {.dp_shard = 2}},
                               {"dp_shard_3", {.dp_shard = 3}},
                               {"dp_shard_2_recomputed", {.dp_shard = 2}, true},
                               {"dp_shard_3_accumulated", {.dp_shard = 3}, true, 3},
                               {"dp_replicate_2", {.dp_replicate = 2}, true},
                               {"hybrid", {.dp_shard = 2, .dp_replicate = 2}}};
INSTANTIATE_TEST_SUITE_P(Ways, OwnModel, testing::ValuesIn(ways),
                         [](const auto& it) { return it.param.name; });

// The first step of one rank, by autograd alone.
TEST(OwnModelOnOneRank, HasTheGradientOfPlainAutograd) {
  TwoTower model(sizes);
  const at::Tensor loss = loss_of(model, 0, batch);
  loss.backward();
  const Trajectory one = train({"one", {}});
  EXPECT_NEAR(one.losses.front(), loss.item<double>(), 1e-12);
  const std::vector<at::Tensor> parameters = model.parameters();
  ASSERT_EQ(one.gradients.front().size(), parameters.size());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    expect_near(one.gradients.front()[i], parameters[i].grad());
  }
}

}  // namespace
}  // namespace ndmesh
