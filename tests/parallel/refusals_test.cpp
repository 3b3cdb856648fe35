#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ndmesh/base/error.h"
#include "ndmesh/parallel/fully_shard.h"
#include "ndmesh/parallel/replicate.h"
#include "parallel/two_layers.h"

/// What cannot be laid out is refused in words.
namespace ndmesh::parallel {
namespace {

using test::Network;

std::string refusal(const std::function<void(comm::Communicator&)>& action) {
  std::string message;
  comm::run_ranks(mesh::Mesh(mesh::MeshSizes{}), {}, [&](comm::Communicator& communicator) {
    try {
      action(communicator);
    } catch (const RunError& error) {
      message = error.what();
    }
  });
  return message;
}

TEST(Refusals, OptimizerBuiltBeforeTheRootIsSharded) {
  EXPECT_THAT(refusal([](comm::Communicator& communicator) {
                Network network(at::kDouble);
                const auto early = fully_shard(*network.first, communicator);
                early->trainables();
                fully_shard(network, communicator);
              }),
              testing::HasSubstr("shard the root first, then build the optimizer"));
}

TEST(Refusals, HandleOfAnInnerUnitAfterTheRoot) {
  EXPECT_THAT(refusal([](comm::Communicator& communicator) {
                Network network(at::kDouble);
                const auto inner = fully_shard(*network.first, communicator);
                const auto root = fully_shard(network, communicator);
                inner->trainables();
              }),
              testing::HasSubstr("use the handle of the root"));
}

TEST(Refusals, CopiesWhoseParametersLiveOnTheHost) {
  EXPECT_THAT(refusal([](comm::Communicator& communicator) {
                Network network(at::kDouble);
                replicate(network, communicator, mesh::loss_axes, {.offload = job::Offload::all});
              }),
              testing::HasSubstr("allowed: none, optimizer"));
}

TEST(Refusals, ShardingTwice) {
  EXPECT_THAT(refusal([](comm::Communicator& communicator) {
                Network network(at::kDouble);
                fully_shard(network, communicator);
                fully_shard(network, communicator);
              }),
              testing::HasSubstr("laid out already"));
}

TEST(Refusals, ModuleWithoutPorts) {
  struct Plain : torch::nn::Module {
    Plain() { register_parameter("weight", at::ones({2})); }
  };
  EXPECT_THAT(refusal([](comm::Communicator& communicator) {
                Plain plain;
                fully_shard(plain, communicator);
              }),
              testing::HasSubstr("derive it from ndmesh::nn::Unit"));
}

TEST(Refusals, MixedAndScalarParameters) {
  const auto shard_changed = [](const std::function<void(Network&)>& change) {
    return refusal([&](comm::Communicator& communicator) {
      Network network(at::kDouble);
      change(network);
      fully_shard(network, communicator);
    });
  };
  EXPECT_THAT(shard_changed([](Network& n) { n.register_parameter("odd", at::ones({2}, at::kFloat)); }),
              testing::HasSubstr("one dtype"));
  EXPECT_THAT(shard_changed([](Network& n) {
                n.register_parameter("temperature", at::ones({}, at::TensorOptions().dtype(at::kDouble)));
              }),
              testing::HasSubstr("temperature is a scalar"));
}

}  // namespace
}  // namespace ndmesh::parallel
