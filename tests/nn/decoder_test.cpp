#include "ndmesh/nn/decoder.h"

#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <map>
#include <numbers>

#include "model/tiny.h"
#include "ndmesh/base/error.h"
#include "ndmesh/model/config.h"
#include "ndmesh/model/family.h"
#include "ndmesh/nn/functional.h"
#include "nn/support.h"

namespace ndmesh::nn {
namespace {

using namespace test;
using ndmesh::test::tiny;

/// A decoder with memory and random values.
std::shared_ptr<Decoder> ready(const model::ModelSpec& spec, at::ScalarType dtype = at::kDouble) {
  auto decoder = std::make_shared<Decoder>(spec, dtype);
  const at::NoGradGuard no_grad;
  std::uint64_t seed = 1;
  for (at::Tensor& parameter : decoder->parameters()) {
    take_memory(parameter);
    parameter.copy_(random(parameter.sizes(), at::kDouble, seed++) * 0.2);
  }
  return decoder;
}

at::Tensor some_ids(std::int64_t batch, std::int64_t length) {
  return (at::arange(batch * length, at::kLong) * 37 + 11).remainder(257).view({batch, length});
}

void expect_registered(const model::ModelSpec& spec) {
  const Decoder decoder(spec, at::kFloat);
  const auto registered = decoder.named_parameters();
  const auto expected = spec.parameters();
  ASSERT_EQ(registered.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(registered[i].key(), expected[i].name);
    EXPECT_EQ(registered[i].value().sizes(), at::IntArrayRef(expected[i].shape)) << expected[i].name;
    EXPECT_FALSE(has_memory(registered[i].value()));
  }
}

TEST(Decoder, RegistersTheParametersOfItsSpecInOrder) {
  model::ModelSpec tied = tiny();
  tied.tied = true;
  model::ModelSpec full = tiny();
  full.qkv_bias = full.output_bias = full.mlp_bias = full.qk_norm = true;
  for (const model::ModelSpec& spec : {tiny(), tied, full}) {
    expect_registered(spec);
  }
}

/// A small model of each family that runs.
std::vector<model::ModelSpec> families() {
  std::vector<model::ModelSpec> specs;
  for (const std::string& family : model::runnable_families()) {
    const std::string config = R"({"model_type": ")" + family + R"(", "vocab_size": 257, "hidden_size": 48,
      "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 8, "n_inner": 70,
      "intermediate_size": 70, "max_position_embeddings": 64, "attn_pdrop": 0, "embd_pdrop": 0, "resid_pdrop": 0})";
    specs.push_back(model::spec_from_config(config, family));
  }
  return specs;
}

TEST(Decoder, RegistersTheParametersOfEveryFamilyInOrder) {
  ASSERT_GE(families().size(), 10U);
  for (const model::ModelSpec& spec : families()) {
    SCOPED_TRACE(spec.family);
    expect_registered(spec);
  }
}

TEST(Decoder, EveryFamilyGeneratesWithACacheWhatItComputesWithout) {
  const at::NoGradGuard no_grad;
  for (const model::ModelSpec& spec : families()) {
    const auto decoder = ready(spec);
    const at::Tensor ids = some_ids(2, 12);
    KvCache cache(spec, 2, 12, at::kDouble);
    Tensors parts = {decoder->logits(ids.narrow(1, 0, 7), &cache)};
    for (std::int64_t i = 7; i < 12; ++i) {
      parts.push_back(decoder->logits(ids.narrow(1, i, 1), &cache));
    }
    EXPECT_LT(distance(at::cat(parts, 1), decoder->logits(ids)), 1e-12) << spec.family;
  }
}

TEST(Decoder, RefusesSequencesBeyondLearnedPositions) {
  for (const model::ModelSpec& spec : families()) {
    if (spec.learned_positions) {
      const auto decoder = ready(spec);
      EXPECT_NO_THROW(decoder->logits(some_ids(1, 64)));
      EXPECT_THROW(decoder->logits(some_ids(1, 65)), RunError);
    }
  }
}

TEST(Decoder, LossIsThatOfItsLogits) {
  const auto decoder = ready(tiny());
  const at::Tensor ids = some_ids(2, 9);
  at::Tensor targets = some_ids(2, 9).flip(1).clone();
  targets[0][3] = ignored;
  const at::Tensor loss = decoder->loss(ids, targets, 1.0 / 17, 5);
  const at::Tensor expected = at::cross_entropy_loss(decoder->logits(ids).flatten(0, 1), targets.flatten(),
                                                     {}, at::Reduction::Mean, ignored);
  EXPECT_LT(distance(loss, expected), 1e-13);
  const at::Tensor& weight = decoder->blocks()[1]->mlp->up_proj->weight;
  loss.backward();
  const at::Tensor own = weight.grad().clone();
  weight.mutable_grad() = at::Tensor();
  expected.backward();
  EXPECT_LT(distance(own, weight.grad()), 1e-12);
}

TEST(Decoder, GradientsAreSlopes) {  // finite differences along a random direction, all parameters at once
  model::ModelSpec spec = tiny();
  spec.layers = 2;
  spec.tied = spec.qk_norm = spec.qkv_bias = true;
  const auto decoder = ready(spec);
  const at::Tensor ids = some_ids(1, 12);
  decoder->loss(ids, ids.roll(-1), 1.0 / 12, 5).backward();
  const at::NoGradGuard no_grad;
  const double step = 1e-6;
  double slope = 0;
  const auto loss_at = [&](double length) {
    std::uint64_t seed = 500;
    for (at::Tensor& p : decoder->parameters()) {
      p.add_(random(p.sizes(), at::kDouble, seed++), length);
    }
    return decoder->loss(ids, ids.roll(-1), 1.0 / 12, 5).item<double>();
  };
  std::uint64_t seed = 500;
  for (const at::Tensor& p : decoder->parameters()) {
    slope += (p.grad() * random(p.sizes(), at::kDouble, seed++)).sum().item<double>();
  }
  const double above = loss_at(step);
  const double below = loss_at(-2 * step);
  EXPECT_NEAR((above - below) / (2 * step), slope, 1e-6 * std::abs(slope));
}

TEST(Decoder, GivesNoGradientToFrozenParameters) {
  const auto decoder = ready(tiny());
  for (at::Tensor& p : decoder->parameters()) {
    p.set_requires_grad(p.is_same(decoder->head_weight()));
  }
  const at::Tensor ids = some_ids(1, 8);
  decoder->loss(ids, ids, 1.0, 8).backward();
  std::int64_t trainable = 0;
  for (const at::Tensor& p : decoder->parameters()) {
    trainable += p.grad().defined() ? p.numel() : 0;
  }
  EXPECT_EQ(trainable, 12336);
}

TEST(Decoder, GeneratesWithACacheWhatItComputesWithout) {
  const at::NoGradGuard no_grad;
  const auto decoder = ready(tiny());
  const at::Tensor ids = some_ids(2, 20);
  KvCache cache(decoder->spec(), 2, 20, at::kDouble);
  EXPECT_EQ(cache.bytes(), 2 * 20 * 2560);  // 1280 bytes a token in float32
  Tensors parts = {decoder->logits(ids.narrow(1, 0, 7), &cache),
                   decoder->logits(ids.narrow(1, 7, 3), &cache)};
  for (std::int64_t i = 10; i < 20; ++i) {
    parts.push_back(decoder->logits(ids.narrow(1, i, 1), &cache));
  }
  EXPECT_EQ(cache.length(), 20);
  EXPECT_LT(distance(at::cat(parts, 1), decoder->logits(ids)), 1e-12);
}

TEST(Decoder, GreedyTokensAreThoseWithoutACacheAndWeightsStayAsTheyWere) {
  const at::NoGradGuard no_grad;
  const auto decoder = ready(tiny());
  Tensors before;
  for (const at::Tensor& p : decoder->parameters()) {
    before.push_back(p.clone());
  }
  KvCache cache(decoder->spec(), 1, 60, at::kDouble);
  at::Tensor ids = some_ids(1, 3);
  at::Tensor next = ids;
  while (ids.size(1) < 60) {
    next = decoder->logits(next, &cache).select(1, -1).argmax(-1, true);
    ASSERT_TRUE(next.equal(decoder->logits(ids).select(1, -1).argmax(-1, true))) << ids.size(1);
    ids = at::cat({ids, next}, 1);
  }
  for (std::size_t i = 0; i < before.size(); ++i) {
    EXPECT_TRUE(before[i].equal(decoder->parameters()[i]));
  }
}

TEST(KvCache, RefusesMoreThanItHolds) {
  const at::NoGradGuard no_grad;
  const auto decoder = ready(tiny());
  KvCache cache(decoder->spec(), 1, 4, at::kDouble);
  decoder->logits(some_ids(1, 3), &cache);
  EXPECT_THROW(decoder->logits(some_ids(1, 2), &cache), RequestError);
  EXPECT_ANY_THROW(KvCache(decoder->spec(), 1, 0, at::kDouble));
  EXPECT_ANY_THROW(cache.advance(2));
}

TEST(Decoder, RefusesSequencesBeyondASlidingWindow) {
  model::ModelSpec spec = tiny();
  spec.sliding_window = 8;
  const auto decoder = ready(spec);
  EXPECT_NO_THROW(decoder->logits(some_ids(1, 8)));
  EXPECT_THROW(decoder->logits(some_ids(1, 9)), RunError);
  const at::NoGradGuard no_grad;
  KvCache cache(spec, 1, 12, at::kDouble);
  decoder->logits(some_ids(1, 8), &cache);
  EXPECT_THROW(decoder->logits(some_ids(1, 1), &cache), RunError);
}

TEST(Decoder, PortsSeeWhatPassesInOrder) {
  const auto decoder = ready(tiny());
  std::vector<std::string> seen;
  const auto watch = [&](Port& port, const std::string& name) {
    port.attach([&seen, name](const at::Tensor& t) {
      seen.push_back(name + " " + std::to_string(t.dim()));
      return t;
    });
  };
  watch(decoder->enter, "enter");
  watch(decoder->embed_out, "embed_out");
  Block& block = *decoder->blocks()[4];
  watch(block.enter, "block enter");
  watch(block.self_attn->column_in, "attention in");
  watch(block.self_attn->row_out, "attention out");
  watch(block.mlp->column_in, "mlp in");
  watch(block.mlp->row_out, "mlp out");
  watch(block.leave, "block leave");
  watch(decoder->loss_in, "loss_in");
  watch(decoder->leave, "leave");
  decoder->loss(some_ids(1, 4), some_ids(1, 4), 1.0, 4);
  EXPECT_EQ(seen, (std::vector<std::string>{"enter 2", "embed_out 3", "block enter 3", "attention in 3",
                                            "attention out 3", "mlp in 3", "mlp out 3", "block leave 3",
                                            "loss_in 3", "leave 0"}));
}

TEST(Decoder, ComputesInEveryDtype) {
  const at::Tensor ids = some_ids(2, 16);
  const double exact = ready(tiny())->loss(ids, ids.roll(-1), 1.0 / 32, 7).item<double>();
  EXPECT_NEAR(ready(tiny(), at::kFloat)->loss(ids, ids.roll(-1), 1.0 / 32, 7).item<double>(), exact,
              1e-5 * exact);
  EXPECT_NEAR(ready(tiny(), at::kBFloat16)->loss(ids, ids.roll(-1), 1.0 / 32, 7).item<double>(), exact,
              3e-2 * exact);
}

TEST(RotaryTable, HoldsPlainAndScaledAngles) {
  model::ModelSpec spec = tiny();
  spec.rope_theta = 500000.0;
  spec.head_dim = 128;
  const auto angle = [&](std::int64_t position, std::int64_t i) {
    const auto table = RotaryTable(spec, at::kDouble).range(position, 1);
    return std::atan2(table.sin_SD2[0][i].item<double>(), table.cos_SD2[0][i].item<double>());
  };
  const double slow = std::pow(500000.0, -126.0 / 128);  // the last pair: wavelength 2.6 million
  EXPECT_NEAR(angle(20000, 63), 20000 * slow, 1e-13);
  EXPECT_NEAR(angle(3, 0), 3.0, 1e-14);
  spec.rope_scaling = {model::RopeScaling::Kind::linear, 4.0};
  EXPECT_NEAR(angle(20000, 63), 5000 * slow, 1e-13);
  EXPECT_NEAR(angle(4, 0), 1.0, 1e-14);
  spec.rope_scaling = {model::RopeScaling::Kind::llama3, 8.0, 1.0, 4.0, 8192};
  EXPECT_NEAR(angle(20000, 63), 2500 * slow, 1e-13);
  EXPECT_NEAR(angle(3, 0), 3.0, 1e-14);
  const double middle = std::pow(500000.0, -64.0 / 128);  // wavelength 4443, between 2048 and 8192
  const double smooth = (8192 * middle / (2 * std::numbers::pi) - 1) / 3;
  EXPECT_NEAR(angle(100, 32), 100 * middle * ((1 - smooth) / 8 + smooth), 1e-13);
}

TEST(RotaryTable, TurnsAPartOfEachHeadAndHasLocalAngles) {
  model::ModelSpec spec = tiny();
  spec.rotary_factor = 0.75;  // 12 of 16
  spec.rope_local_theta = 100.0;
  spec.rope_scaling = {model::RopeScaling::Kind::linear, 4.0};
  const auto global = RotaryTable(spec, at::kDouble).range(1, 1);
  const auto local = RotaryTable(spec, at::kDouble, true).range(1, 1);
  ASSERT_EQ(global.sin_SD2.size(1), 6);
  EXPECT_NEAR(global.sin_SD2[0][5].item<double>(), std::sin(std::pow(10000.0, -10.0 / 12) / 4), 1e-15);
  EXPECT_NEAR(local.sin_SD2[0][5].item<double>(), std::sin(std::pow(100.0, -10.0 / 12)), 1e-15);
}

TEST(RotaryTable, GrowsWithoutChangingWhatItHeld) {
  RotaryTable table(tiny(), at::kFloat);
  const auto first = table.range(2, 5);
  const auto later = table.range(2, 50);
  EXPECT_EQ(first.cos_SD2.scalar_type(), at::kFloat);
  EXPECT_TRUE(first.cos_SD2.equal(later.cos_SD2.narrow(0, 0, 5)));
  EXPECT_TRUE(first.sin_SD2.equal(later.sin_SD2.narrow(0, 0, 5)));
}

}  // namespace
}  // namespace ndmesh::nn
