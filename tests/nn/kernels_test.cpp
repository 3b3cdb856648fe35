// The two implementations of Kernels against each other, on the CPU: the composites are what other devices
// run.
#include "ndmesh/nn/kernels.h"

#include <ATen/Parallel.h>

#include <array>

#include "ndmesh/nn/functional.h"
#include "nn/support.h"

namespace ndmesh::nn {
namespace {

using namespace test;

class KernelsAgree : public testing::TestWithParam<at::ScalarType> {
 protected:
  at::Tensor value(at::IntArrayRef shape, std::uint64_t seed) const {
    return random(shape, GetParam(), seed);
  }
  void expect_same(const at::Tensor& result, const at::Tensor& expected) const {
    ASSERT_EQ(result.defined(), expected.defined());
    if (result.defined()) {
      EXPECT_EQ(result.scalar_type(), expected.scalar_type());
      EXPECT_LT(distance(result, expected), tolerance(GetParam()));
    }
  }
  const Kernels& own = cpu_kernels();
  const Kernels& composite = composite_kernels();
};
INSTANTIATE_TEST_SUITE_P(DTypes, KernelsAgree, testing::ValuesIn(all_dtypes),
                         [](const auto& instance) { return c10::toString(instance.param); });

TEST_P(KernelsAgree, OnProducts) {  // blocks are 128 by 64 of the result, 512 deep
  for (const auto& [m, n, k] :
       {std::array<std::int64_t, 3>{3, 5, 7}, {64, 64, 64}, {129, 65, 513}, {300, 130, 70}}) {
    for (const bool turned_a : {false, true}) {
      for (const bool turned_b : {false, true}) {
        const at::Tensor a = turned_a ? value({k, m}, 1).t() : value({m, k}, 1);
        const at::Tensor b = turned_b ? value({n, k}, 2).t() : value({k, n}, 2);
        at::Tensor out = value({m, n}, 3);
        const at::Tensor added = a.to(at::kDouble).mm(b.to(at::kDouble)) + out.to(at::kDouble);
        own.multiply(out, a, b, true);
        EXPECT_LT(distance(out, added), tolerance(GetParam())) << m << ", " << turned_a << turned_b;
        own.multiply(out, a, b, false);
        expect_same(out, a.mm(b));
      }
    }
  }
}

TEST_P(KernelsAgree, OnProductsOfAnyThreads) {
  const at::Tensor a = value({700, 600}, 1);
  const at::Tensor b = value({600, 130}, 2);
  const auto result = [&](int threads) {
    at::set_num_threads(threads);
    at::Tensor out = at::empty({700, 130}, a.options());
    own.multiply(out, a, b, false);
    at::set_num_threads(1);
    return out;
  };
  EXPECT_LT(distance(result(2), result(1)), GetParam() == at::kFloat ? 1e-300 : tolerance(GetParam()));
}

TEST_P(KernelsAgree, OnNorms) {
  for (const NormKind kind : {NormKind::rms, NormKind::unit_offset_rms, NormKind::layer}) {
    const bool layer = kind == NormKind::layer;
    const at::Tensor x = value({3, 7, 10}, 1);
    const NormParameters parameters = {value({10}, 2), layer ? value({10}, 6) : at::Tensor(), 1e-6, kind};
    const Kernels::Normed a = own.norm(x, value({3, 7, 10}, 3), parameters);
    const Kernels::Normed b = composite.norm(x, value({3, 7, 10}, 3), parameters);
    expect_same(a.sum, b.sum);
    expect_same(a.normed, b.normed);
    expect_same(a.mean, b.mean);
    expect_same(a.rstd, b.rstd);
    for (const at::Tensor& dsum : {at::Tensor(), value({3, 7, 10}, 4)}) {
      for (const auto& [want_dx, want_dweight] :
           {std::pair{true, true}, std::pair{true, false}, std::pair{false, true}}) {
        const Kernels::NormBackward in = {
            a.sum, parameters.weight, a.mean, a.rstd, value({3, 7, 10}, 5), dsum, kind};
        const auto ours = own.norm_backward(in, want_dx, want_dweight);
        const auto theirs = composite.norm_backward(in, want_dx, want_dweight);
        EXPECT_EQ(ours.dx.defined(), want_dx);
        EXPECT_EQ(ours.dweight.defined(), want_dweight);
        EXPECT_EQ(ours.dbias.defined(), want_dweight && layer);
        expect_same(ours.dx, theirs.dx);
        expect_same(ours.dweight, theirs.dweight);
        expect_same(ours.dbias, theirs.dbias);
      }
    }
  }
}

TEST_P(KernelsAgree, OnGatedActivations) {
  const at::Tensor fused = value({5, 18}, 1) * 3;
  const at::Tensor dout = value({5, 9}, 3);
  for (const Activation activation : {Activation::silu, Activation::gelu_tanh}) {
    for (const bool has_up : {true, false}) {
      for (const bool halves : {true, false}) {
        const auto laid = [&](const at::Tensor& t) { return halves ? t : t.contiguous(); };
        const at::Tensor gate = laid(fused.narrow(1, 0, 9));
        const at::Tensor up = has_up ? laid(fused.narrow(1, 9, 9)) : at::Tensor();
        expect_same(own.gated(activation, gate, up), composite.gated(activation, gate, up));
        const auto gradients = [&](const Kernels& kernels) {
          const at::Tensor both = at::zeros_like(fused);
          const Kernels::GatedGradients out = {laid(both.narrow(1, 0, 9)),
                                               has_up ? laid(both.narrow(1, 9, 9)) : at::Tensor()};
          kernels.gated_backward(activation, out, gate, up, dout);
          return out;
        };
        const auto ours = gradients(own);
        const auto theirs = gradients(composite);
        expect_same(ours.dgate, theirs.dgate);
        expect_same(ours.dup, theirs.dup);
      }
    }
  }
}

TEST_P(KernelsAgree, OnRotate) {
  const at::Tensor angles = random({4, 3}, wide_dtype(GetParam()));
  for (const int sign : {1, -1}) {
    for (const std::int64_t head : {6, 10}) {  // whole, and a part of it
      const at::Tensor x = value({2, 4, 3, head}, 1);
      const at::Tensor turned = own.rotate(x, angles.cos(), angles.sin(), sign);
      expect_same(turned, composite.rotate(x, angles.cos(), angles.sin(), sign));
      EXPECT_TRUE(turned.narrow(3, 6, head - 6).equal(x.narrow(3, 6, head - 6)));
    }
  }
}

TEST_P(KernelsAgree, OnAttention) {
  const Kernels::AttentionInputs in = {value({2, 5, 4, 6}, 1), value({2, 5, 2, 6}, 2),
                                       value({2, 5, 2, 6}, 3)};
  for (const AttentionOptions& options :
       {AttentionOptions{}, {.scale = 0.3}, {.softcap = 1.5}, {.window = 2}, {.softcap = 1.5, .window = 3}}) {
    const Kernels::Attended a = own.attention(in, options);
    const Kernels::Attended b = composite.attention(in, options);
    expect_same(a.out_BSND, b.out_BSND);
    expect_same(a.lse_BNS, b.lse_BNS);
    const auto ours = own.attention_backward(in, a, value({2, 5, 4, 6}, 4), options);
    const auto theirs = composite.attention_backward(in, a, value({2, 5, 4, 6}, 4), options);
    expect_same(ours.q_BSND, theirs.q_BSND);
    expect_same(ours.k_BSKD, theirs.k_BSKD);
    expect_same(ours.v_BSKD, theirs.v_BSKD);
  }
  const Kernels::AttentionInputs last = {in.q_BSND.narrow(1, 3, 2), in.k_BSKD, in.v_BSKD};
  const AttentionOptions past = {.past = 3};
  expect_same(own.attention(last, past).out_BSND, composite.attention(last, past).out_BSND);
}

TEST_P(KernelsAgree, OnTheLogSumOfScores) {
  const Kernels::AttentionInputs in = {value({1, 150, 6, 16}, 1), value({1, 150, 2, 16}, 2),
                                       value({1, 150, 2, 16}, 3)};
  for (const AttentionOptions& options : {AttentionOptions{}, {.softcap = 1.5, .window = 33}}) {
    const at::Tensor lse = own.attention(in, options).lse_BNS;
    EXPECT_EQ(lse.scalar_type(), wide_dtype(GetParam()));
    EXPECT_LT(distance(lse, composite.attention(in, options).lse_BNS),
              GetParam() == at::kDouble ? 1e-14 : 1e-6);
  }
}

TEST_P(KernelsAgree, OnEmbeddingGradient) {
  const at::Tensor ids = at::tensor(std::vector<std::int64_t>{2, 0, 2, 2}).view({2, 2});
  expect_same(own.embedding_gradient(ids, value({2, 2, 5}, 1), 4),
              composite.embedding_gradient(ids, value({2, 2, 5}, 1), 4));
}

TEST_P(KernelsAgree, OnCrossEntropy) {
  const at::Tensor targets = at::tensor(std::vector<std::int64_t>{6, ignored, 0});
  for (const bool gradient : {false, true}) {
    at::Tensor logits = value({3, 7}, 1);
    at::Tensor copy = logits.clone();
    const at::Tensor a = own.cross_entropy(logits, targets, {0.5, gradient, {}});
    const at::Tensor b = composite.cross_entropy(copy, targets, {0.5, gradient, {}});
    EXPECT_EQ(a.scalar_type(), at::kDouble);
    expect_same(a, b);
    expect_same(logits, copy);
  }
}

}  // namespace
}  // namespace ndmesh::nn
