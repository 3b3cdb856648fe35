// The chunked head and loss against plain cross-entropy.
#include <cmath>

#include "ndmesh/base/error.h"
#include "ndmesh/nn/functional.h"
#include "nn/support.h"

namespace ndmesh::nn {
namespace {

using namespace test;

const at::Tensor targets =
    at::tensor(std::vector<std::int64_t>{4, ignored, 0, 12, ignored, 7, 7}).view({1, 7});

at::Tensor plain_loss(const at::Tensor& x, const at::Tensor& weight, double scale) {
  return at::cross_entropy_loss(x.matmul(weight.t()).flatten(0, 1), targets.flatten(), {}, at::Reduction::Sum,
                                ignored) *
         scale;
}

class HeadLoss : public testing::TestWithParam<at::ScalarType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, HeadLoss, testing::ValuesIn(all_dtypes),
                         [](const auto& instance) { return c10::toString(instance.param); });

TEST_P(HeadLoss, EqualsCrossEntropyForAnyChunk) {
  const at::Tensor x = random({1, 7, 6});
  const at::Tensor weight = random({13, 6}, at::kDouble, 2);
  for (const std::int64_t chunk : {1, 3, 7, 100}) {
    const Operator op = [&](const Tensors& t) {
      return Tensors{head_loss(t[0], t[1], targets, {0.2, chunk})};
    };
    const Operator composite = [&](const Tensors& t) { return Tensors{plain_loss(t[0], t[1], 0.2)}; };
    expect_equal(op, composite, {x, weight}, GetParam());
  }
}

TEST_P(HeadLoss, CapsLogits) {
  for (const std::int64_t chunk : {3, 7}) {
    const Operator op = [&](const Tensors& t) {
      return Tensors{head_loss(t[0], t[1], targets, {0.2, chunk, 1.5})};
    };
    const Operator composite = [&](const Tensors& t) {
      const at::Tensor logits = at::tanh(t[0].matmul(t[1].t()) / 1.5) * 1.5;
      return Tensors{
          at::cross_entropy_loss(logits.flatten(0, 1), targets.flatten(), {}, at::Reduction::Sum, ignored) *
          0.2};
    };
    expect_equal(op, composite, {random({1, 7, 6}), random({13, 6}, at::kDouble, 2)}, GetParam());
  }
}

TEST_P(HeadLoss, NothingToLearnIsZeroAndNoNan) {
  const at::Tensor x = leaf(random({2, 3, 4}, GetParam()));
  const at::Tensor weight = leaf(random({5, 4}, GetParam(), 2));
  const at::Tensor loss = head_loss(x, weight, at::full({2, 3}, ignored, at::kLong), {1.0, 2});
  loss.backward();
  EXPECT_EQ(loss.item<double>(), 0);
  EXPECT_EQ(x.grad().abs().max().item<double>(), 0);
  EXPECT_EQ(weight.grad().abs().max().item<double>(), 0);
}

TEST_P(HeadLoss, OfAZeroHeadIsLogOfVocabulary) {
  for (const auto& [vocab, expected] :
       {std::pair{128256, 11.761784}, std::pair{257, 5.549076}, std::pair{101, 4.615121}}) {
    const at::Tensor loss =
        head_loss(random({1, 2, 4}, GetParam()), at::zeros({vocab, 4}, GetParam()),
                  at::tensor(std::vector<std::int64_t>{0, vocab - 1}).view({1, 2}), {0.5, 8});
    EXPECT_NE(loss.scalar_type(), at::kBFloat16);
    EXPECT_NEAR(loss.item<double>(), std::log(vocab), 1e-6);
    EXPECT_NEAR(loss.item<double>(), expected, 2e-6);
  }
}

TEST(HeadLoss, TakesWhatBackwardSendsIntoAccount) {
  const at::Tensor x = leaf(random({1, 7, 6}));
  const at::Tensor weight = leaf(random({13, 6}, at::kDouble, 2));
  (head_loss(x, weight, targets, {1.0, 4}) * 3).backward();
  const at::Tensor x2 = leaf(x);
  const at::Tensor weight2 = leaf(weight);
  (plain_loss(x2, weight2, 3.0)).backward();
  EXPECT_LT(distance(x.grad(), x2.grad()), 1e-12);
  EXPECT_LT(distance(weight.grad(), weight2.grad()), 1e-12);
}

TEST(HeadLoss, SurvivesHugeLogitsAndShowsNan) {
  for (const at::ScalarType dtype : all_dtypes) {
    at::Tensor x = at::full({1, 2, 1}, 1e4).to(dtype);
    const at::Tensor weight = at::tensor(std::vector<double>{1, -1, 0}).view({3, 1}).to(dtype);
    const at::Tensor ids = at::zeros({1, 2}, at::kLong);
    EXPECT_NEAR(head_loss(x, weight, ids, {1.0, 2}).item<double>(), 0, 1e-12);
    x[0][1].fill_(NAN);
    EXPECT_TRUE(std::isnan(head_loss(x, weight, ids, {1.0, 2}).item<double>()));
  }
}

TEST(HeadLoss, RefusesTokensOutsideOfTheVocabulary) {
  const at::Tensor x = random({1, 7, 6});
  EXPECT_THROW(head_loss(x, random({12, 6}), targets, {1.0, 4}), RunError);
  EXPECT_THROW(head_loss(x, random({13, 6}), targets.clamp_min(-1), {1.0, 4}), RunError);
  EXPECT_THROW(embed(random({12, 6}), targets.clamp_min(0)), RunError);
  EXPECT_THROW(embed(random({13, 6}), targets), RunError);
  try {
    embed(random({12, 6}), targets.clamp_min(0));
  } catch (const RunError& error) {
    EXPECT_STREQ(error.what(),
                 "token id 12 at place 3 of the batch is outside of the vocabulary: 0 .. 11 are allowed");
  }
}

TEST(HeadLoss, RefusesSenselessArguments) {
  const at::Tensor x = random({1, 7, 6});
  const at::Tensor weight = random({13, 6});
  EXPECT_ANY_THROW(head_loss(x, weight, targets, {1.0, 0}));
  EXPECT_ANY_THROW(head_loss(x, weight, targets, {INFINITY, 4}));
  EXPECT_ANY_THROW(head_loss(x, weight, targets, {1.0, 4, 0.0}));
  EXPECT_ANY_THROW(head_loss(x, weight, targets.narrow(1, 0, 6), {1.0, 4}));
  EXPECT_ANY_THROW(head_loss(x, weight, targets.to(at::kInt), {1.0, 4}));
}

}  // namespace
}  // namespace ndmesh::nn
