#include "ndmesh/parallel/data_parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "ndmesh/base/error.h"
#include "ndmesh/nn/parameter.h"
#include "ndmesh/parallel/fully_shard.h"
#include "ndmesh/parallel/recompute.h"
#include "ndmesh/parallel/replicate.h"
#include "parallel/two_layers.h"

namespace ndmesh::parallel {
namespace {

using test::Gradients;
using test::Network;

/// How a network is laid out in a test.
struct Layout {
  std::string name;
  mesh::MeshSizes mesh;
  ShardOptions options;
  enum class Units { layers, one, first_two_together } units = Units::layers;
  enum class Again { none, used_once, used_twice_too } again = Again::none;
};
using Units = Layout::Units;
using Again = Layout::Again;

std::shared_ptr<DataParallel> lay_out(Network& network, comm::Communicator& communicator,
                                      const Layout& layout) {
  if (layout.again != Again::none) {
    recompute(*network.second, Recomputed::all);
  }
  if (layout.again == Again::used_twice_too) {
    recompute(*network.first, Recomputed::all);
  }
  if (layout.mesh.dp_shard == 1) {
    return replicate(network, communicator, mesh::loss_axes, {.bucket_bytes = 200});
  }
  if (layout.units == Units::layers) {
    for (const auto& layer : network.layers()) {
      fully_shard(*layer, communicator, layout.options);
    }
  } else if (layout.units == Units::first_two_together) {
    fully_shard_together({network.first.get(), network.second.get()}, communicator, layout.options);
  }
  return fully_shard(network, communicator, layout.options);
}

/// Gathered gradients of one step, as rank 0 sees them, after `steps` steps without an update between them.
Gradients gradients_of(const Layout& layout, std::int64_t batch, std::int64_t micro, int steps = 1) {
  Gradients result;
  comm::run_ranks(mesh::Mesh(layout.mesh), {}, [&](comm::Communicator& communicator) {
    Network network(at::kDouble, communicator.rank() == 0 ? 0.0 : 9.0);  // rank 0's values must win
    const auto handle = lay_out(network, communicator, layout);
    Gradients mine;
    for (int step = 0; step < steps; ++step) {
      handle->parameters_changed();
      test::run_step(network, *handle, communicator, batch, micro);
    }
    for (const Trainable& trainable : handle->trainables()) {
      mine.emplace_back(trainable.name, handle->gather_gradient(trainable).clone());
    }
    if (communicator.rank() == 0) {
      result = mine;
    }
  });
  return result;
}

void expect_equal(const Gradients& actual, const Gradients& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    EXPECT_EQ(actual[i].first, expected[i].first);
    const at::Tensor& right = expected[i].second;
    const double error =
        (actual[i].second - right).abs().max().item<double>() / right.abs().max().item<double>();
    EXPECT_LT(error, 1e-13) << actual[i].first;
  }
}

class EveryLayout : public testing::TestWithParam<Layout> {};

TEST_P(EveryLayout, GradientIsThatOfTheWholeBatch) {
  expect_equal(gradients_of(GetParam(), 120, 120 / GetParam().mesh.world()), test::reference_gradients(120));
}

TEST_P(EveryLayout, AccumulationChangesNothing) {
  expect_equal(gradients_of(GetParam(), 120, 1), test::reference_gradients(120));
  expect_equal(gradients_of(GetParam(), 120, 2, /*steps=*/3), test::reference_gradients(120));
}

TEST_P(EveryLayout, RepeatsBitwise) {
  const Gradients once = gradients_of(GetParam(), 120, 2, 2);
  const Gradients again = gradients_of(GetParam(), 120, 2, 2);
  for (std::size_t i = 0; i < once.size(); ++i) {
    EXPECT_TRUE(at::equal(once[i].second, again[i].second)) << once[i].first;
  }
}

const ShardOptions keep{.reshard_after_forward = false, .prefetch = 1};
const ShardOptions far{.reshard_after_forward = true, .prefetch = 2};
const ShardOptions none{.reshard_after_forward = true, .prefetch = 0};
const ShardOptions limited{.prefetch = 2, .gathered_limit = 1500};  // the root and two layers of three
const ShardOptions zero_1{.zero = 1};
const ShardOptions zero_2{.zero = 2};
const ShardOptions on_host{.offload = job::Offload::all};

INSTANTIATE_TEST_SUITE_P(
    , EveryLayout,
    testing::Values(
        Layout{"one_rank", {}, {}}, Layout{"dp_replicate_2", {.dp_replicate = 2}, {}},
        Layout{"dp_replicate_3", {.dp_replicate = 3}, {}}, Layout{"dp_replicate_5", {.dp_replicate = 5}, {}},
        Layout{"dp_shard_2", {.dp_shard = 2}, {}}, Layout{"dp_shard_3", {.dp_shard = 3}, {}},
        Layout{"dp_shard_5", {.dp_shard = 5}, {}},
        Layout{"dp_shard_2_one_unit", {.dp_shard = 2}, {}, Units::one},
        Layout{"dp_shard_3_together", {.dp_shard = 3}, {}, Units::first_two_together},
        Layout{"dp_shard_2_limited", {.dp_shard = 2}, limited},
        Layout{"zero_1_over_2", {.dp_shard = 2}, zero_1},
        Layout{"zero_1_over_3_one_unit", {.dp_shard = 3}, zero_1, Units::one},
        Layout{"zero_2_over_2", {.dp_shard = 2}, zero_2}, Layout{"zero_2_over_5", {.dp_shard = 5}, zero_2},
        Layout{"zero_1_hybrid", {.dp_shard = 2, .dp_replicate = 2}, zero_1},
        Layout{"zero_2_hybrid", {.dp_shard = 2, .dp_replicate = 2}, zero_2},
        Layout{"recomputed", {}, {}, Units::layers, Again::used_twice_too},
        Layout{"dp_replicate_2_recomputed", {.dp_replicate = 2}, {}, Units::layers, Again::used_twice_too},
        Layout{"dp_shard_2_recomputed", {.dp_shard = 2}, {}, Units::layers, Again::used_twice_too},
        Layout{"zero_1_recomputed", {.dp_shard = 2}, zero_1, Units::layers, Again::used_twice_too},
        Layout{"hybrid_recomputed",
               {.dp_shard = 2, .dp_replicate = 2},
               {},
               Units::layers,
               Again::used_twice_too},
        Layout{"dp_shard_2_kept", {.dp_shard = 2}, keep},
        Layout{"dp_shard_2_prefetch_2", {.dp_shard = 2}, far},
        Layout{"dp_shard_3_no_prefetch", {.dp_shard = 3}, none},
        Layout{"hybrid_2_2", {.dp_shard = 2, .dp_replicate = 2}, {}},
        Layout{"hybrid_kept", {.dp_shard = 2, .dp_replicate = 2}, keep},
        Layout{"dp_shard_3_on_host", {.dp_shard = 3}, on_host},
        Layout{"hybrid_on_host", {.dp_shard = 2, .dp_replicate = 2}, on_host},
        Layout{"hybrid_on_host_recomputed",
               {.dp_shard = 2, .dp_replicate = 2},
               on_host,
               Units::layers,
               Again::used_twice_too}),
    [](const auto& one) { return one.param.name; });

TEST(FullyShard, SettingsChangeNoBit) {
  const Gradients reference = gradients_of({"", {.dp_shard = 2}, none}, 12, 2, 3);
  const auto expect_same = [&](const Layout& layout) {
    const Gradients other = gradients_of(layout, 12, 2, 3);
    for (std::size_t i = 0; i < reference.size(); ++i) {
      EXPECT_TRUE(at::equal(reference[i].second, other[i].second)) << reference[i].first;
    }
  };
  for (const ShardOptions& options : {keep, far, limited, zero_2, on_host}) {
    expect_same({"", {.dp_shard = 2}, options});
  }
  expect_same({"", {.dp_shard = 2}, none, Units::first_two_together});
  expect_same({"", {.dp_shard = 2}, none, Units::one});
  expect_same({"", {.dp_shard = 2}, none, Units::layers, Again::used_once});
}

TEST(FullyShard, TheOptimizerAloneIsCutUnderZero1) {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    comm::run_ranks(mesh::Mesh({.dp_shard = 2}), {}, [&](comm::Communicator& communicator) {
      Network network(dtype);
      const at::Tensor before = network.second->weight.detach().to(at::kFloat);
      const auto handle = fully_shard(network, communicator, zero_1);
      for (Trainable& trainable : handle->trainables()) {
        EXPECT_EQ(trainable.value.sizes(),
                  at::IntArrayRef(trainable.layout.local_shape(communicator.rank())));
        trainable.value.add_(0.25);
      }
      handle->parameters_changed();
      const at::NoGradGuard no_grad;
      network.loss(test::samples(0, 3, dtype), 1.0);
      const at::Tensor expected = (before + 0.25).to(dtype);
      EXPECT_TRUE(at::equal(network.second->weight, expected)) << network.second->weight;  // stays whole
    });
  }
}

TEST(FullyShard, RefusesWhatDoesNotFitTogether) {
  comm::run_ranks(mesh::Mesh({.dp_shard = 2}), {}, [](comm::Communicator& communicator) {
    Network network(at::kDouble);
    fully_shard(*network.first, communicator, zero_1);
    const auto message = [&](auto&& action) -> std::string {
      try {
        action();
      } catch (const RunError& error) {
        return error.what();
      }
      return "nothing";
    };
    EXPECT_THAT(message([&] { fully_shard(network, communicator); }),
                testing::HasSubstr("zero is 3 at the root but 1"));
    EXPECT_THAT(message([&] { fully_shard(network, communicator, {.zero = 4}); }),
                testing::HasSubstr("allowed: 1 to 3"));
    EXPECT_THAT(
        message([&] { fully_shard(network, communicator, {.zero = 2, .offload = job::Offload::all}); }),
        testing::HasSubstr("offload is all with zero 2"));
    EXPECT_THAT(
        message([&] { fully_shard(network, communicator, {.zero = 1, .offload = job::Offload::optimizer}); }),
        testing::HasSubstr("offload is optimizer at the root but none"));
    EXPECT_THAT(message([&] { fully_shard_together({}, communicator); }), testing::HasSubstr("no module"));
    EXPECT_THAT(message([&] { fully_shard_together({&network}, communicator); }),
                testing::HasSubstr("has units below"));
    fully_shard_together({network.second.get(), network.third.get()}, communicator, zero_1);
    const at::Tensor x = at::zeros({1, 7}, at::kDouble);
    EXPECT_THAT(message([&] { network.second->forward(x); }), testing::HasSubstr("shard the root before"));
  });
}

TEST(Recompute, KeepsOnlyTheInputOfAUnit) {
  Network network(at::kDouble);
  int forwards = 0;
  network.second->enter.attach([&](const at::Tensor& x) {
    ++forwards;
    return x;
  });
  recompute(*network.second, Recomputed::all);
  EXPECT_THROW(recompute(*network.second, Recomputed::cheap), RunError);
  const at::Tensor loss = network.loss(test::samples(0, 4, at::kDouble), 0.25);  // an input without gradient
  loss.backward();
  EXPECT_EQ(forwards, 1);  // the unit is entered once, its body runs twice
  const Gradients right = test::reference_gradients(4);
  std::size_t i = 0;
  for (const auto& item : network.named_parameters()) {
    EXPECT_TRUE(at::equal(item.value().grad(), right[i++].second)) << item.key();
  }
}

TEST(Recompute, OfAnInputThatNeedsNoGradient) {
  Network network(at::kDouble);
  recompute(*network.first, Recomputed::all);
  network.loss(test::samples(0, 4, at::kDouble), 0.25).backward();
  Gradients gradients;
  for (const auto& item : network.named_parameters()) {
    gradients.emplace_back(item.key(), item.value().grad());
  }
  expect_equal(gradients, test::reference_gradients(4));
}

TEST(FullyShard, OwnsOnlyItsPartAndGathersTheWhole) {
  comm::run_ranks(mesh::Mesh({.dp_shard = 3}), {}, [](comm::Communicator& communicator) {
    Network network(at::kDouble);
    const at::Tensor before = network.second->weight.detach().clone();
    const auto handle = fully_shard(network, communicator);
    const auto& all = handle->trainables();
    const Trainable& weight =
        *std::find_if(all.begin(), all.end(), [](const Trainable& t) { return t.name == "second.weight"; });
    EXPECT_EQ(weight.value.size(0), communicator.rank() < 2 ? 2 : 1);  // 5 rows over 3 ranks
    EXPECT_TRUE(at::equal(handle->gather_value(weight), before));
  });
}

TEST(FullyShard, ReadingAwayFromItsUnitThrows) {
  comm::run_ranks(mesh::Mesh({.dp_shard = 2}), {}, [](comm::Communicator& communicator) {
    Network network(at::kDouble);
    for (const auto& layer : network.layers()) {
      fully_shard(*layer, communicator);
    }
    const auto handle = fully_shard(network, communicator);
    EXPECT_THROW(network.first->weight.sum(), c10::Error);
    test::run_step(network, *handle, communicator, 4, 1);
    EXPECT_THROW(network.first->weight.sum(), c10::Error);
    try {
      network.first->weight.sum();
    } catch (const c10::Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("first: its parameters are sharded"));
    }
  });
}

TEST(FullyShard, ForwardWithoutGradientsLeavesNothingGathered) {
  comm::run_ranks(mesh::Mesh({.dp_shard = 2}), {}, [](comm::Communicator& communicator) {
    Network network(at::kDouble);
    for (const auto& layer : network.layers()) {
      fully_shard(*layer, communicator);
    }
    const auto handle = fully_shard(network, communicator);
    const at::NoGradGuard no_grad;
    const double loss = network.loss(test::samples(0, 4, at::kDouble), 1.0).item<double>();
    const double right = Network(at::kDouble).loss(test::samples(0, 4, at::kDouble), 1.0).item<double>();
    EXPECT_NEAR(loss, right, 1e-14);
    EXPECT_THROW(network.scale.sum(), c10::Error);
  });
}

TEST(FullyShard, AnotherStepSeesChangedValues) {
  comm::run_ranks(mesh::Mesh({.dp_shard = 2}), {}, [](comm::Communicator& communicator) {
    Network network(at::kDouble);
    const auto handle = fully_shard(network, communicator);
    for (Trainable& trainable : handle->trainables()) {
      trainable.value.add_(0.25);
    }
    handle->parameters_changed();
    const at::NoGradGuard no_grad;
    Network changed(at::kDouble);
    for (at::Tensor& parameter : changed.parameters()) {
      parameter.add_(0.25);
    }
    EXPECT_NEAR(network.loss(test::samples(0, 3, at::kDouble), 1.0).item<double>(),
                changed.loss(test::samples(0, 3, at::kDouble), 1.0).item<double>(), 1e-13);
  });
}

/// The sum of four weights of 1 in bfloat16.
struct Sum : torch::nn::Module, nn::Unit {
  Sum() { weight = register_parameter("weight", at::ones({4}, at::TensorOptions().dtype(at::kBFloat16))); }
  at::Tensor loss(double gradient) {
    return pass(at::zeros({}), [this, gradient](const at::Tensor&) { return weight.sum() * gradient; });
  }
  at::Tensor weight;
};

std::shared_ptr<DataParallel> lay_out(Sum& module, comm::Communicator& communicator,
                                      const ShardOptions& options) {
  if (communicator.mesh().sizes().dp_shard > 1) {
    return fully_shard(module, communicator, options);
  }
  return replicate(module, communicator, mesh::loss_axes);
}

/// Small gradients added to a large one: lost in bfloat16, kept in float32. 256 + 255 ones, over
/// micro-batches and ranks.
void expect_sum_in_float32(const mesh::MeshSizes& sizes, const ShardOptions& options = {}) {
  comm::run_ranks(mesh::Mesh(sizes), {}, [&](comm::Communicator& communicator) {
    Sum module;
    const auto handle = lay_out(module, communicator, options);
    const std::int64_t count = 256 / communicator.world();
    for (std::int64_t i = 0; i < count; ++i) {
      handle->begin_micro_batch(i + 1 == count);
      module.loss(communicator.rank() == 0 && i == 0 ? 256.0 : 1.0).backward();
    }
    handle->finish_backward();
    const Trainable& weight = handle->trainables().front();
    EXPECT_EQ(weight.gradient.scalar_type(), at::kFloat);
    EXPECT_EQ(weight.value.scalar_type(), at::kFloat);
    EXPECT_TRUE(at::equal(handle->gather_gradient(weight), at::full({4}, 511.0, at::kFloat)));
  });
}

TEST(BFloat16, GradientsAreSummedInFloat32) {
  expect_sum_in_float32({});
  expect_sum_in_float32({.dp_replicate = 2});
  expect_sum_in_float32({.dp_shard = 2});
  expect_sum_in_float32({.dp_shard = 2, .dp_replicate = 2});
  for (const ShardOptions& options : {zero_1, zero_2, on_host}) {
    expect_sum_in_float32({.dp_shard = 2}, options);
    expect_sum_in_float32({.dp_shard = 2, .dp_replicate = 2}, options);
  }
}

/// 100 updates of 6e-4, each too small for a bfloat16 weight of 1: the float32 master takes them, and the next forward
/// reads it rounded.
void expect_small_updates(const mesh::MeshSizes& sizes, const ShardOptions& options = {}) {
  comm::run_ranks(mesh::Mesh(sizes), {}, [&](comm::Communicator& communicator) {
    Sum module;
    const auto handle = lay_out(module, communicator, options);
    const Trainable& weight = handle->trainables().front();
    for (int update = 0; update < 100; ++update) {
      weight.value.sub_(6e-4);
      handle->parameters_changed();
    }
    EXPECT_LT((handle->gather_value(weight) - 0.94).abs().max().item<double>(), 1e-5) << sizes.name();
    const at::NoGradGuard no_grad;
    EXPECT_EQ(module.loss(0.25).item<double>(), 0.94140625) << sizes.name();
  });
}

TEST(BFloat16, UpdatesSmallerThanItsStepAreKept) {
  expect_small_updates({});
  expect_small_updates({.dp_replicate = 2});
  for (const ShardOptions& options : {ShardOptions{}, zero_1, zero_2, on_host}) {
    expect_small_updates({.dp_shard = 2}, options);
  }
}

// ---------------------------------------------------------------------------------------------- frozen

/// A unit that is frozen, below trained ones, and a part of another.
void freeze_some(Network& network) {
  for (at::Tensor parameter : {network.second->weight, network.second->bias, network.third->weight}) {
    parameter.set_requires_grad(false);
  }
}

void expect_others_trained(Network& network, DataParallel& layout, comm::Communicator& communicator) {
  std::vector<std::string> names, trained;
  for (const OwnedParameter& parameter : layout.parameters()) {
    names.push_back(parameter.name);
    const at::Tensor full = layout.gather_value(parameter);
    EXPECT_TRUE(at::equal(full, Network(at::kDouble).named_parameters()[parameter.name])) << parameter.name;
  }
  EXPECT_THAT(names, testing::ElementsAre("scale", "first.weight", "first.bias", "third.bias",
                                          "second.weight", "second.bias", "third.weight"));
  test::run_step(network, layout, communicator, 12, 1);
  for (const auto& [name, right] : test::reference_gradients(12)) {
    const auto& all = layout.trainables();
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const Trainable& t) { return t.name == name; });
    if (found != all.end()) {
      trained.push_back(name);
      EXPECT_LT((layout.gather_gradient(*found) - right).abs().max().item<double>(), 1e-13) << name;
    }
  }
  EXPECT_THAT(trained, testing::ElementsAre("scale", "first.weight", "first.bias", "third.bias"));
}

TEST(Frozen, HaveNoGradientAndStopNone) {
  for (const mesh::MeshSizes& sizes :
       {mesh::MeshSizes{}, {.dp_replicate = 3}, {.dp_shard = 3}, {.dp_shard = 2, .dp_replicate = 2}}) {
    for (std::int64_t zero = sizes.dp_shard > 1 ? 1 : 0; zero <= (sizes.dp_shard > 1 ? 3 : 0); ++zero) {
      comm::run_ranks(mesh::Mesh(sizes), {}, [&](comm::Communicator& communicator) {
        Network network(at::kDouble);
        freeze_some(network);
        if (zero == 0) {
          expect_others_trained(network, *replicate(network, communicator, mesh::loss_axes), communicator);
          return;
        }
        for (const auto& layer : network.layers()) {
          fully_shard(*layer, communicator, {.zero = zero});
        }
        const auto handle = fully_shard(network, communicator, {.zero = zero});
        handle->parameters_changed();  // all rows of all ranks are gathered
        expect_others_trained(network, *handle, communicator);
      });
    }
  }
}

/// Its gradients would say when a unit is done; one without is freed when its input's gradient is there.
TEST(Frozen, AUnitThatIsFrozenIsFreedInBackward) {
  comm::run_ranks(mesh::Mesh({.dp_shard = 2}), {}, [](comm::Communicator& communicator) {
    Network network(at::kDouble);
    freeze_some(network);
    for (const auto& layer : network.layers()) {
      fully_shard(*layer, communicator, {.reshard_after_forward = false, .prefetch = 0});
    }
    const auto handle = fully_shard(network, communicator, {.reshard_after_forward = false, .prefetch = 0});
    handle->begin_micro_batch(true);
    const at::Tensor loss = network.loss(test::samples(0, 4, at::kDouble).requires_grad_(), 1.0);
    EXPECT_TRUE(nn::has_memory(network.second->weight));
    loss.backward();
    EXPECT_FALSE(nn::has_memory(network.second->weight));
    handle->finish_backward();
  });
}

/// Frozen values need no wide copy.
TEST(Frozen, StayInTheDtypeOfCompute) {
  for (const mesh::MeshSizes& sizes : {mesh::MeshSizes{}, {.dp_shard = 2}}) {
    comm::run_ranks(mesh::Mesh(sizes), {}, [&](comm::Communicator& communicator) {
      Network network(at::kBFloat16);
      freeze_some(network);
      const auto handle =
          sizes.dp_shard > 1
              ? fully_shard(network, communicator)
              : std::shared_ptr<DataParallel>(replicate(network, communicator, mesh::loss_axes));
      for (const OwnedParameter& parameter : handle->parameters()) {
        const bool frozen = parameter.name.starts_with("second") || parameter.name == "third.weight";
        EXPECT_EQ(parameter.value.scalar_type(), frozen ? at::kBFloat16 : at::kFloat) << parameter.name;
      }
    });
  }
}

}  // namespace
}  // namespace ndmesh::parallel
