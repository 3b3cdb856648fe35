#include "ndmesh/nn/autograd.h"

#include "ndmesh/nn/functional.h"
#include "nn/support.h"

namespace ndmesh::nn {
namespace {

using namespace test;

/// x^2 as an operator; says what backward was asked for in `asked`, if given.
at::Tensor square(const at::Tensor& x, const at::Tensor& unused, std::vector<bool>* asked = nullptr) {
  Tensors out;
  {
    const WithoutAutograd plain;
    out = {x * x};
  }
  attach("square", {x, unused}, out, {x},
         [asked](const Tensors& saved, const Tensors& grads, const Needs& needs) {
           if (asked != nullptr) {
             *asked = {needs(0), needs(1)};
           }
           return Tensors{2 * saved[0] * grads[0], needs(1) ? at::zeros_like(saved[0]) : at::Tensor()};
         });
  return out[0];
}

TEST(Attach, MakesAnOperatorDifferentiable) {
  const at::Tensor x = leaf(random({4}));
  square(square(x, {}), {}).sum().backward();
  EXPECT_LT(distance(x.grad(), 4 * x.detach().pow(3)), 1e-15);
}

TEST(Attach, SaysWhichGradientsAreNeeded) {
  std::vector<bool> asked;
  const at::Tensor x = leaf(random({4}));
  square(x, random({4}), &asked).sum().backward();
  EXPECT_EQ(asked, (std::vector<bool>{true, false}));
  const at::Tensor y = leaf(random({4}));
  square(x, y, &asked).sum().backward();
  EXPECT_EQ(asked, (std::vector<bool>{true, true}));
}

TEST(Attach, DoesNothingWithoutGradients) {
  const at::Tensor x = leaf(random({4}));
  {
    const at::NoGradGuard no_grad;
    EXPECT_FALSE(square(x, {}).requires_grad());
  }
  EXPECT_FALSE(square(x.detach(), {}).requires_grad());
  EXPECT_TRUE(square(x, {}).requires_grad());
}

TEST(Attach, CatchesChangesInPlaceAndASecondBackward) {
  const at::Tensor x = leaf(random({4}));
  const at::Tensor between = square(x, {});
  const at::Tensor y = square(between, {}).sum();
  {
    const at::NoGradGuard no_grad;
    between.mul_(2);
  }
  EXPECT_ANY_THROW(y.backward());
  const at::Tensor z = square(x, {}).sum();
  z.backward();
  EXPECT_ANY_THROW(z.backward());
}

TEST(Attach, GivesSavedTensorsBackWithTheGraph) {
  at::Tensor x = leaf(random({4}));
  at::Tensor y = square(x, {});
  EXPECT_GT(x.use_count(), 2U);  // the node and its edge to the leaf hold it
  y = at::Tensor();
  EXPECT_LE(x.use_count(), 2U);  // the leaf's accumulator may stay
}

/// Gradients of a norm, two products of it, their activation and a product of that; `kept`: whether the norm's output
/// outlives forward.
Tensors feed_forward_gradients(at::ScalarType dtype, bool* kept = nullptr) {
  const at::Tensor x = leaf(random({6, 8}).to(dtype));
  const at::Tensor y = leaf(random({6, 8}, dtype, 2));
  const at::Tensor norm = leaf(random({8}).to(dtype));
  const at::Tensor gate = leaf(random({12, 8}).to(dtype));
  const at::Tensor up = leaf(random({12, 8}).to(dtype));
  const at::Tensor down = leaf(random({8, 12}).to(dtype));
  auto [sum, normed] = add_rms_norm(x, y, norm, 1e-6);
  at::Tensor out =
      nn::linear(swiglu(nn::linear(normed, gate, at::Tensor()), nn::linear(normed, up, at::Tensor())), down,
                 at::Tensor());
  const auto watched = normed.storage().getWeakStorageImpl();
  normed = at::Tensor();
  if (kept != nullptr) {
    *kept = !watched.expired();
  }
  (out + sum).square().sum().backward();
  return {x.grad(), y.grad(), norm.grad(), gate.grad(), up.grad(), down.grad()};
}

/// What a message in backward needs: it starts when the gradient of its operator's output is there, the products of weights
/// run, and it is waited for last. What the weights read is made again then, though its maker's own backward is over.
TEST(Attach, GradientsOfWeightsComeBetweenStartAndWait) {
  std::vector<std::string> events;
  const at::Tensor x = leaf(random({2, 3, 4}));
  const at::Tensor first = leaf(random({5, 4}, at::kDouble, 2));
  const at::Tensor second = leaf(random({6, 4}, at::kDouble, 3));
  const at::Tensor bias = leaf(random({6}, at::kDouble, 4));
  const std::uint64_t turns = reserve_turns(3);
  Tensors waits = {x.detach()};
  attach("wait", {x}, waits, {},
         [&](const Tensors&, const Tensors& grads, const Needs&) {
           const bool both = first.grad().defined() && second.grad().defined() && bias.grad().defined();
           events.emplace_back(both ? "wait, weights are done" : "wait");
           return grads;
         },
         {.turn = turns});
  Tensors doubled = {x.detach() * 2};
  attach("start", {waits[0]}, doubled, {x},
         [&](const Tensors&, const Tensors& grads, const Needs&) {
           events.emplace_back(first.grad().defined() || second.grad().defined() ? "start, late" : "start");
           return Tensors{grads[0] * 2};
         },
         {.again =
              [&](const Tensors& saved) {
                events.emplace_back("again");
                return Tensors{saved[0] * 2};
              },
          .always_again = true,
          .saved_for_again = true,
          .turn = turns + 2,
          .weights_turn = turns + 1});
  const at::Tensor sum = linear(doubled[0], first, at::Tensor()).square().sum() +
                         linear(doubled[0], second, bias).square().sum();
  doubled.clear();
  sum.backward();
  EXPECT_THAT(events, testing::ElementsAre("start", "again", "wait, weights are done"));

  const at::Tensor plain_x = leaf(x);
  const at::Tensor plain_first = leaf(first);
  const at::Tensor plain_second = leaf(second);
  const at::Tensor plain_bias = leaf(bias);
  const at::Tensor plain = plain_x * 2;
  (linear(plain, plain_first, at::Tensor()).square().sum() +
   linear(plain, plain_second, plain_bias).square().sum())
      .backward();
  EXPECT_LT(distance(x.grad(), plain_x.grad()), 1e-14);
  EXPECT_LT(distance(first.grad(), plain_first.grad()), 1e-14);
  EXPECT_LT(distance(second.grad(), plain_second.grad()), 1e-14);
  EXPECT_LT(distance(bias.grad(), plain_bias.grad()), 1e-14);
}

TEST(KeepLess, MakesOutputsAgainBitForBit) {
  for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
    bool kept = false;
    const Tensors plain = feed_forward_gradients(dtype, &kept);
    EXPECT_TRUE(kept);
    Tensors less;
    {
      const KeepLess scope;
      less = feed_forward_gradients(dtype, &kept);
    }
    EXPECT_FALSE(kept);
    for (std::size_t i = 0; i < plain.size(); ++i) {
      EXPECT_TRUE(at::equal(plain[i], less[i])) << i << " " << dtype;
    }
  }
}

TEST(KeepOnHost, TensorsThatShareMemoryInOtherOrdersAreKeptApart) {
  const at::Tensor x = leaf(random({64, 64}));
  {
    const KeepOnHost scope;
    const at::Tensor y = square(x, {});
    const at::Tensor turned_first = square(y.t(), {});
    (turned_first + square(y, {}).t()).sum().backward();  // d/dx of 2 x^4
  }
  EXPECT_LT(distance(x.grad(), 8 * x.detach().pow(3)), 1e-14);
}

}  // namespace
}  // namespace ndmesh::nn
