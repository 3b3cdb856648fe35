// Every operator against the plain composite of libtorch under ordinary autograd, and what it saves and
// refuses.
#include <ATen/Parallel.h>

#include <cmath>

#include "ndmesh/nn/functional.h"
#include "nn/support.h"

namespace ndmesh::nn {
namespace {

using namespace test;

class Operators : public testing::TestWithParam<at::ScalarType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, Operators, testing::ValuesIn(all_dtypes),
                         [](const auto& instance) { return c10::toString(instance.param); });

at::Tensor plain_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  return x * (x.square().mean(-1, true) + eps).rsqrt() * weight;
}

at::Tensor plain_rotate(const at::Tensor& x, const at::Tensor& cos_SD2, const at::Tensor& sin_SD2) {
  const at::Tensor cos = at::cat({cos_SD2, cos_SD2}, -1).unsqueeze(1);
  const at::Tensor sin = at::cat({sin_SD2, sin_SD2}, -1).unsqueeze(1);
  const auto halves = x.chunk(2, -1);
  return x * cos + at::cat({-halves[1], halves[0]}, -1) * sin;
}

at::Tensor plain_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const AttentionOptions& options = {}) {
  const std::int64_t group = q.size(2) / k.size(2);
  const at::Tensor keys = k.repeat_interleave(group, 2).transpose(1, 2);
  const at::Tensor values = v.repeat_interleave(group, 2).transpose(1, 2);
  const double scale = options.scale > 0 ? options.scale : 1 / std::sqrt(static_cast<double>(q.size(3)));
  at::Tensor scores = q.transpose(1, 2).matmul(keys.transpose(2, 3)) * scale;
  if (options.softcap > 0) {
    scores = (scores / options.softcap).tanh() * options.softcap;
  }
  const at::Tensor query = at::arange(q.size(1)).unsqueeze(1) + options.past;
  const at::Tensor back = query - at::arange(k.size(1));
  const at::Tensor unseen = options.window > 0 ? (back < 0).logical_or(back >= options.window) : back < 0;
  return scores.masked_fill(unseen, -INFINITY).softmax(-1).matmul(values).transpose(1, 2);
}

TEST_P(Operators, Linear) {
  const Operator op = [](const Tensors& t) { return Tensors{linear(t[0], t[1], t[2])}; };
  const Operator composite = [](const Tensors& t) { return Tensors{t[0].matmul(t[1].t()) + t[2]}; };
  expect_equal(op, composite, {random({2, 5, 7}), random({11, 7}), random({11})}, GetParam());
}

TEST_P(Operators, LinearWithoutBias) {
  const Operator op = [](const Tensors& t) { return Tensors{nn::linear(t[0], t[1], {})}; };
  const Operator composite = [](const Tensors& t) { return Tensors{t[0].matmul(t[1].t())}; };
  expect_equal(op, composite, {random({2, 5, 7}), random({11, 7})}, GetParam());
}

TEST_P(Operators, RmsNorm) {
  for (const std::int64_t size : {1, 3, 16, 130}) {
    const Operator op = [](const Tensors& t) { return Tensors{rms_norm(t[0], t[1], 1e-5)}; };
    const Operator composite = [](const Tensors& t) { return Tensors{plain_norm(t[0], t[1], 1e-5)}; };
    expect_equal(op, composite, {random({3, 50, size}), random({size}, at::kDouble, 2)}, GetParam());
  }
}

/// Two parts of a norm give what the whole gives; what the other part would say is known from the whole.
TEST(NormOfAPart, IsThePartOfTheWhole) {
  constexpr double eps = 1e-5;
  const at::Tensor whole = random({3, 5, 24});
  const at::Tensor weight = random({24}, at::kDouble, 2);
  const at::Tensor dy = random({3, 5, 24}, at::kDouble, 3);
  const at::Tensor x = leaf(whole), w = leaf(weight);
  const at::Tensor expected = plain_norm(x, w, eps);
  expected.backward(dy);
  const at::Tensor squares = whole.square().mean(-1, true);
  const at::Tensor along = (dy * weight * whole * (squares + eps).rsqrt()).mean(-1, true);
  for (const std::int64_t first : {0, 12}) {
    const auto part = [&](const at::Tensor& t) { return t.narrow(-1, first, 12).contiguous(); };
    int calls = 0;
    Port mean;
    mean.attach([&](const at::Tensor&) { return ++calls == 1 ? squares : along; });
    const at::Tensor px = leaf(part(whole)), pw = leaf(part(weight));
    const at::Tensor y = norm_of_part(px, {pw, {}, eps, NormKind::rms}, mean);
    y.backward(part(dy));
    EXPECT_EQ(calls, 2);
    EXPECT_LT(distance(y.detach(), part(expected.detach())), 1e-14);
    EXPECT_LT(distance(px.grad(), part(x.grad())), 1e-13);
    EXPECT_LT(distance(pw.grad(), part(w.grad())), 1e-13);
  }
}

TEST(NormOfAPart, TellsItsOwnMeans) {
  const at::Tensor x = leaf(random({4, 6}));
  Tensors told;
  Port mean;
  mean.attach([&](const at::Tensor& own) {
    told.push_back(own.clone());
    return own;
  });
  const at::Tensor weight = random({6}, at::kDouble, 2);
  const at::Tensor y = norm_of_part(x, {weight, {}, 0.1, NormKind::unit_offset_rms}, mean);
  y.sum().backward();
  const at::Tensor squares = x.detach().square().mean(-1, true);
  ASSERT_EQ(told.size(), 2U);
  EXPECT_LT(distance(told[0], squares), 1e-15);
  EXPECT_LT(distance(told[1], ((1 + weight) * x.detach() * (squares + 0.1).rsqrt()).mean(-1, true)), 1e-14);
}

TEST_P(Operators, AddRmsNorm) {
  const Operator op = [](const Tensors& t) {
    const auto [sum, normed] = add_rms_norm(t[0], t[1], t[2], 1e-5);
    return Tensors{sum, normed};
  };
  const Operator composite = [](const Tensors& t) {
    const at::Tensor sum = t[0] + t[1];
    return Tensors{sum, plain_norm(sum, t[2], 1e-5)};
  };
  expect_equal(op, composite,
               {random({3, 50, 37}), random({3, 50, 37}, at::kDouble, 2), random({37}, at::kDouble, 3)},
               GetParam());
}

TEST_P(Operators, Swiglu) {
  const Operator op = [](const Tensors& t) { return Tensors{swiglu(t[0], t[1])}; };
  const Operator composite = [](const Tensors& t) { return Tensors{t[0] * t[0].sigmoid() * t[1]}; };
  expect_equal(op, composite, {random({3, 50, 37}) * 4, random({3, 50, 37}, at::kDouble, 2)}, GetParam());
}

TEST_P(Operators, LinearOfOneRowLeavesItsBias) {
  const at::Tensor bias = random({11}, GetParam(), 3);
  const at::Tensor before = bias.clone();
  nn::linear(random({1, 1, 7}, GetParam()), random({11, 7}, GetParam(), 2), bias);
  EXPECT_TRUE(bias.equal(before));
}

TEST_P(Operators, LinearWithATransposedWeight) {
  const Operator op = [](const Tensors& t) { return Tensors{nn::linear(t[0], t[1], t[2], true)}; };
  const Operator composite = [](const Tensors& t) { return Tensors{t[0].matmul(t[1]) + t[2]}; };
  expect_equal(op, composite, {random({2, 5, 7}), random({7, 11}), random({11})}, GetParam());
}

TEST_P(Operators, OffsetNormIsThatOfOnePlusTheWeight) {
  const Operator op = [](const Tensors& t) {
    return Tensors{norm(t[0], {t[1], {}, 1e-5, NormKind::unit_offset_rms})};
  };
  const Operator composite = [](const Tensors& t) { return Tensors{plain_norm(t[0], 1 + t[1], 1e-5)}; };
  expect_equal(op, composite, {random({3, 50, 37}), random({37}, at::kDouble, 2)}, GetParam());
}

TEST_P(Operators, AddLayerNorm) {
  const Operator op = [](const Tensors& t) {
    const auto [sum, normed] = add_norm(t[0], t[1], {t[2], t[3], 1e-5, NormKind::layer});
    return Tensors{sum, normed};
  };
  const Operator composite = [](const Tensors& t) {
    const at::Tensor sum = t[0] + t[1];
    return Tensors{sum, at::layer_norm(sum, {37}, t[2], t[3], 1e-5)};
  };
  expect_equal(op, composite,
               {random({3, 50, 37}) + 2, random({3, 50, 37}, at::kDouble, 2), random({37}, at::kDouble, 3),
                random({37}, at::kDouble, 4)},
               GetParam());
}

TEST_P(Operators, GatedGelu) {
  for (const bool halves : {false, true}) {
    const Operator op = [&](const Tensors& t) {
      return Tensors{halves ? gated_halves(Activation::gelu_tanh, t[0])
                            : gated(Activation::gelu_tanh, t[0].narrow(2, 0, 37), t[0].narrow(2, 37, 37))};
    };
    const Operator composite = [](const Tensors& t) {
      return Tensors{at::gelu(t[0].narrow(2, 0, 37), "tanh") * t[0].narrow(2, 37, 37)};
    };
    expect_equal(op, composite, {random({3, 50, 74}) * 2}, GetParam());
  }
}

TEST_P(Operators, GeluWithoutAGate) {
  const Operator op = [](const Tensors& t) { return Tensors{gated(Activation::gelu_tanh, t[0], {})}; };
  const Operator composite = [](const Tensors& t) { return Tensors{at::gelu(t[0], "tanh")}; };
  expect_equal(op, composite, {random({3, 50, 37}) * 2}, GetParam());
}

TEST_P(Operators, SplitQkv) {
  const Operator op = [](const Tensors& t) {
    const auto [q, k, v] = split_qkv(t[0], 8);
    EXPECT_TRUE(q.is_contiguous() && k.is_contiguous() && v.is_contiguous());
    return Tensors{q, k, v};
  };
  const Operator composite = [](const Tensors& t) {
    return Tensors{t[0].narrow(2, 0, 8), t[0].narrow(2, 8, 4), t[0].narrow(2, 12, 4)};
  };
  expect_equal(op, composite, {random({2, 5, 16})}, GetParam());
}

TEST(SplitQkv, PartsWithoutAGradientHaveZero) {
  const at::Tensor fused = leaf(random({2, 16}));
  std::get<1>(split_qkv(fused, 8)).sum().backward();
  EXPECT_EQ(fused.grad().sum().item<double>(), 8);
}

TEST_P(Operators, Rotate) {
  const at::Tensor angles = random({6, 4}, at::kDouble, 7);
  const at::ScalarType table = GetParam() == at::kDouble ? at::kDouble : at::kFloat;
  const Operator op = [&](const Tensors& t) {
    return Tensors{rotate(t[0], angles.cos().to(table), angles.sin().to(table))};
  };
  const Operator composite = [&](const Tensors& t) {
    return Tensors{plain_rotate(t[0], angles.cos(), angles.sin())};
  };
  expect_equal(op, composite, {random({2, 6, 3, 8})}, GetParam());
}

TEST_P(Operators, Attention) {
  for (const AttentionOptions& options :
       {AttentionOptions{}, {.scale = 0.5}, {.softcap = 2}, {.window = 1}, {.softcap = 2, .window = 7}}) {
    for (const std::int64_t kv_heads : {6, 2, 1}) {
      const Operator op = [&](const Tensors& t) { return Tensors{attention(t[0], t[1], t[2], options)}; };
      const Operator composite = [&](const Tensors& t) {
        return Tensors{plain_attention(t[0], t[1], t[2], options)};
      };
      expect_equal(op, composite,
                   {random({2, 19, 6, 8}), random({2, 19, kv_heads, 8}, at::kDouble, 2),
                    random({2, 19, kv_heads, 8}, at::kDouble, 3)},
                   GetParam());
    }
  }
}

struct AttentionShape {
  std::int64_t sequence;
  std::int64_t heads;
  std::int64_t kv_heads;
  std::int64_t size;
};

TEST_P(Operators,
       AttentionInManyShapes) {  // tiles are 64 keys by 128 queries: below, at and beyond their borders
  for (const AttentionShape& shape : {AttentionShape{1, 1, 1, 2},
                                      {2, 3, 1, 4},
                                      {63, 2, 1, 16},
                                      {64, 2, 2, 32},
                                      {65, 6, 2, 64},
                                      {128, 1, 1, 80},
                                      {129, 4, 1, 40},
                                      {130, 5, 1, 128},
                                      {97, 40, 1, 6},
                                      {200, 2, 1, 256},
                                      {257, 3, 3, 18},
                                      {70, 2, 1, 5}}) {
    for (const AttentionOptions& options : {AttentionOptions{}, {.scale = 0.1, .softcap = 3, .window = 70}}) {
      const Operator op = [&](const Tensors& t) { return Tensors{attention(t[0], t[1], t[2], options)}; };
      const Operator composite = [&](const Tensors& t) {
        return Tensors{plain_attention(t[0], t[1], t[2], options)};
      };
      SCOPED_TRACE(testing::Message() << shape.sequence << " positions, " << shape.heads << " heads over "
                                      << shape.kv_heads << ", size " << shape.size);
      expect_equal(op, composite,
                   {random({2, shape.sequence, shape.heads, shape.size}),
                    random({2, shape.sequence, shape.kv_heads, shape.size}, at::kDouble, 2),
                    random({2, shape.sequence, shape.kv_heads, shape.size}, at::kDouble, 3)},
                   GetParam());
    }
  }
}

TEST_P(Operators, AttentionReadsPartsOfAFusedProjection) {
  const auto parts = [](const at::Tensor& qkv) { return qkv.split({4, 2, 2}, 2); };
  const Operator op = [&](const Tensors& t) {
    const auto qkv = parts(t[0]);
    return Tensors{attention(qkv[0], qkv[1], qkv[2])};
  };
  const Operator composite = [&](const Tensors& t) {
    const auto qkv = parts(t[0]);
    return Tensors{plain_attention(qkv[0], qkv[1], qkv[2])};
  };
  expect_equal(op, composite, {random({2, 70, 8, 16})}, GetParam());
}

TEST_P(Operators, Embed) {
  const at::Tensor ids = at::tensor(std::vector<std::int64_t>{3, 0, 3, 9, 3, 0}).view({2, 3});
  const Operator op = [&](const Tensors& t) { return Tensors{embed(t[0], ids)}; };
  const Operator composite = [&](const Tensors& t) {
    return Tensors{t[0].index_select(0, ids.flatten()).view({2, 3, 5})};
  };
  expect_equal(op, composite, {random({10, 5})}, GetParam());
}

TEST_P(Operators, AttentionOverPastKeys) {
  const at::NoGradGuard no_grad;
  const at::Tensor k = random({2, 12, 2, 8}, GetParam(), 2);
  const at::Tensor v = random({2, 12, 2, 8}, GetParam(), 3);
  for (const std::int64_t queries : {1, 4}) {
    for (const std::int64_t window : {0, 3}) {
      const AttentionOptions options = {.window = window, .past = 12 - queries};
      const at::Tensor q = random({2, queries, 6, 8}, GetParam());
      const at::Tensor expected =
          plain_attention(q.to(at::kDouble), k.to(at::kDouble), v.to(at::kDouble), options);
      EXPECT_LT(distance(attention(q, k, v, options), expected), tolerance(GetParam())) << queries;
    }
  }
}

TEST_P(Operators, AttentionOverManyPastKeys) {
  const at::NoGradGuard no_grad;
  const at::Tensor k = random({1, 300, 2, 32}, GetParam(), 2);
  const at::Tensor v = random({1, 300, 2, 32}, GetParam(), 3);
  for (const std::int64_t queries : {1, 7, 8, 65, 170}) {
    for (const std::int64_t window : {0, 90}) {
      const AttentionOptions options = {.window = window, .past = 300 - queries};
      const at::Tensor q = random({1, queries, 6, 32}, GetParam());
      const at::Tensor expected =
          plain_attention(q.to(at::kDouble), k.to(at::kDouble), v.to(at::kDouble), options);
      EXPECT_LT(distance(attention(q, k, v, options), expected), tolerance(GetParam())) << queries;
    }
  }
}

TEST_P(Operators, AttentionRepeatsBitwiseOnAnyThreads) {
  const at::Tensor qkv = random({2, 150, 8, 32}, GetParam());
  const auto results = [&](int threads) {
    at::set_num_threads(threads);
    const at::Tensor input = leaf(qkv);
    const auto parts = input.split({4, 2, 2}, 2);
    const at::Tensor out = attention(parts[0], parts[1], parts[2]);
    out.backward(random({2, 150, 4, 32}, GetParam(), 2));
    at::set_num_threads(1);
    return std::pair(out.detach(), input.grad());
  };
  const auto once = results(1);
  for (const int threads : {1, 2, 3}) {
    const auto again = results(threads);
    EXPECT_TRUE(again.first.equal(once.first)) << threads;
    EXPECT_TRUE(again.second.equal(once.second)) << threads;
  }
}

TEST_P(Operators, AttentionOfLargeScoresDoesNotOverflow) {
  // Each query's largest score, by far, is its own key's: attention hands on its value.
  const std::int64_t positions = 200;
  const at::Tensor angle = at::arange(positions, at::kDouble) * (3.0 / positions);
  const at::Tensor unit = at::stack({angle.cos(), angle.sin()}, -1).view({1, positions, 1, 2});
  const at::Tensor q = leaf((unit * 3e4).to(GetParam()));
  const at::Tensor k = leaf((unit * 3e4).to(GetParam()));
  const at::Tensor v = leaf(random({1, positions, 1, 2}, GetParam()));
  const at::Tensor out = attention(q, k, v);
  const at::Tensor expected = plain_attention(q.to(at::kDouble), k.to(at::kDouble), v.to(at::kDouble));
  EXPECT_LT(distance(out, expected), tolerance(GetParam()));
  out.sum().backward();
  EXPECT_TRUE(q.grad().isfinite().all().item<bool>());
  EXPECT_TRUE(k.grad().isfinite().all().item<bool>());
}

TEST(Embed, ManyUsesOfOneTokenAreSummedBeforeRounding) {  // 256 + 1 is 256 in bfloat16
  const at::Tensor table = leaf(at::zeros({2, 3}, at::kBFloat16));
  at::Tensor grad = at::ones({1, 257, 3}, at::kBFloat16);
  grad[0][0].fill_(256);
  embed(table, at::zeros({1, 257}, at::kLong)).backward(grad);
  EXPECT_EQ(table.grad()[0][0].item<double>(), 512.0);
  EXPECT_EQ(table.grad()[1].abs().sum().item<double>(), 0.0);
}

TEST(RmsNorm, WeightGradientDoesNotDependOnThreads) {
  const at::Tensor x = random({1000, 33}, at::kFloat);
  const auto gradient = [&](int threads) {
    at::set_num_threads(threads);
    const at::Tensor weight = leaf(at::ones({33}, at::kFloat));
    rms_norm(x, weight, 1e-5).sum().backward();
    at::set_num_threads(1);
    return weight.grad();
  };
  EXPECT_TRUE(gradient(1).equal(gradient(4)));
}

TEST(AddRmsNorm, OneGradientMayBeMissing) {
  const Tensors values = {random({4, 5}), random({4, 5}, at::kDouble, 2), random({5}, at::kDouble, 3)};
  for (const bool use_sum : {true, false}) {
    const Operator op = [&](const Tensors& t) {
      const auto [sum, normed] = add_rms_norm(t[0], t[1], t[2], 1e-5);
      return Tensors{use_sum ? sum + 0 * t[2] : normed + 0 * t[2]};
    };
    const Operator composite = [&](const Tensors& t) {
      const at::Tensor sum = t[0] + t[1];
      return Tensors{use_sum ? sum + 0 * t[2] : plain_norm(sum, t[2], 1e-5) + 0 * t[2]};
    };
    expect_equal(op, composite, values, at::kDouble);
  }
}

TEST(Swiglu, IsExactInEveryNumber) {
  const at::Tensor gate = at::linspace(-80, 80, 4001, at::kDouble);
  for (const auto& [dtype, error] : {std::pair{at::kDouble, 2e-15}, std::pair{at::kFloat, 1e-6}}) {
    const at::Tensor rounded = gate.to(dtype).to(at::kDouble);
    const at::Tensor expected = rounded / (1 + (-rounded).exp());
    const at::Tensor out = swiglu(gate.to(dtype), at::ones({4001}, dtype)).to(at::kDouble);
    EXPECT_LT(((out - expected).abs() / expected.abs().clamp_min(1e-300)).max().item<double>(), error);
  }
}

TEST(Swiglu, LargeNumbersSaturateAndNanStaysNan) {
  for (const at::ScalarType dtype : all_dtypes) {
    const at::Tensor gate = at::tensor(std::vector<double>{-1e4, 1e4, NAN, 0}).to(dtype);
    const at::Tensor out = swiglu(gate, at::ones({4}, dtype)).to(at::kDouble);
    EXPECT_NEAR(out[0].item<double>(), 0, 1e-30);
    EXPECT_NEAR(out[1].item<double>(), 1e4, 40);
    EXPECT_TRUE(std::isnan(out[2].item<double>()));
    EXPECT_EQ(out[3].item<double>(), 0);
  }
}

TEST(RmsNorm, NanAndInfinityDoNotDisappear) {
  for (const at::ScalarType dtype : all_dtypes) {
    for (const double bad : {static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
      at::Tensor x = at::ones({2, 40}, dtype);
      x[1][33].fill_(bad);
      const at::Tensor out = rms_norm(x, at::ones({40}, dtype), 1e-5);
      EXPECT_TRUE(out[1][33].isnan().item<bool>());
      EXPECT_FALSE(out[0].isnan().any().item<bool>());
    }
  }
}

TEST(Operators, RefuseWhatTheyCannotCompute) {
  const at::Tensor x = random({2, 4});
  EXPECT_ANY_THROW(rms_norm(x, random({5}), 1e-5));
  EXPECT_ANY_THROW(rms_norm(x, random({4}, at::kFloat), 1e-5));
  EXPECT_ANY_THROW(rms_norm(x.to(at::kHalf), random({4}, at::kHalf), 1e-5));
  EXPECT_ANY_THROW(add_rms_norm(x, random({2, 1}), random({4}), 1e-5));
  EXPECT_ANY_THROW(swiglu(x, random({4, 2})));
  EXPECT_ANY_THROW(gated_halves(Activation::silu, random({4, 3})));
  EXPECT_ANY_THROW(norm(x, {random({4}), {}, 1e-5, NormKind::layer}));
  EXPECT_ANY_THROW(norm(x, {random({4}), random({4}), 1e-5, NormKind::rms}));
  EXPECT_ANY_THROW(split_qkv(random({2, 16}), 16));
  EXPECT_ANY_THROW(split_qkv(random({2, 16}), 7));
  EXPECT_ANY_THROW(rotate(random({1, 2, 3, 8}), random({3, 4}), random({3, 4})));
  EXPECT_ANY_THROW(rotate(random({1, 2, 3, 7}), random({2, 3}), random({2, 3})));
  EXPECT_ANY_THROW(attention(random({1, 2, 3, 4}), random({1, 2, 2, 4}), random({1, 2, 2, 4})));
  EXPECT_ANY_THROW(attention(random({1, 2, 2, 4}), random({1, 3, 2, 4}), random({1, 3, 2, 4})));
  EXPECT_ANY_THROW(
      attention(leaf(random({1, 2, 2, 4})), random({1, 3, 2, 4}), random({1, 3, 2, 4}), {.past = 1}));
  for (const AttentionOptions& negative :
       {AttentionOptions{.scale = -1}, {.softcap = -1}, {.window = -1}, {.past = -1}}) {
    EXPECT_ANY_THROW(attention(random({1, 2, 2, 4}), random({1, 2, 2, 4}), random({1, 2, 2, 4}), negative));
  }
}

}  // namespace
}  // namespace ndmesh::nn
