// Table and head of which a rank has only some rows.
#include "ndmesh/base/error.h"
#include "ndmesh/nn/functional.h"
#include "ndmesh/nn/kernels.h"
#include "nn/support.h"

namespace ndmesh::nn {
namespace {

using namespace test;

constexpr std::int64_t vocab = 13;
const std::vector<std::int64_t> ends = {0, 5, 10, 13, 13};  ///< four parts, the last of them empty

const at::Tensor targets =
    at::tensor(std::vector<std::int64_t>{4, ignored, 0, 12, ignored, 7, 7}).view({1, 7});

class VocabularyParts : public testing::TestWithParam<at::ScalarType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, VocabularyParts, testing::ValuesIn(all_dtypes),
                         [](const auto& instance) { return c10::toString(instance.param); });

/// Statistics of every part, by libtorch's own operators on the logits as they are in the dtype of compute.
at::Tensor statistics_of_all(const at::Tensor& x, const at::Tensor& weight, std::optional<double> softcap) {
  at::Tensor logits = x.matmul(weight.t()).flatten(0, 1);
  if (softcap) {
    logits = (at::tanh(logits / *softcap)) * *softcap;
  }
  logits = logits.to(wide_dtype(x.scalar_type()));
  std::vector<at::Tensor> parts;
  for (std::size_t p = 0; p + 1 < ends.size(); ++p) {
    const at::Tensor part = logits.narrow(1, ends[p], ends[p + 1] - ends[p]);
    at::Tensor found = at::zeros({3, logits.size(0)}, logits.options());
    found[0].fill_(-std::numeric_limits<double>::infinity());
    for (std::int64_t t = 0; t < logits.size(0) && part.size(1) > 0; ++t) {
      found[0][t] = part[t].max();
      found[1][t] = (part[t] - part[t].max()).exp().sum();
      const std::int64_t local = targets[0][t].item<std::int64_t>() - ends[p];
      found[2][t] = local >= 0 && local < part.size(1) ? part[t][local].item<double>() : 0.0;
    }
    parts.push_back(found);
  }
  return at::stack(parts);
}

TEST_P(VocabularyParts, TogetherAreTheWholeHead) {
  for (const std::optional<double> softcap : {std::optional<double>(), std::optional<double>(1.5)}) {
    const at::Tensor x = random({1, 7, 6}, GetParam());
    const at::Tensor weight = random({vocab, 6}, GetParam(), 2);
    const at::Tensor whole_x = leaf(x);
    const at::Tensor whole_weight = leaf(weight);
    const at::Tensor expected = head_loss(whole_x, whole_weight, targets, {0.2, 100, softcap});
    expected.backward();

    const at::Tensor all = statistics_of_all(x, weight, softcap);
    at::Tensor dx = at::zeros_like(x, at::kDouble);
    std::vector<at::Tensor> dweight;
    for (std::size_t p = 0; p + 1 < ends.size(); ++p) {
      const auto gather = [&](const at::Tensor& mine) {
        for (std::int64_t row = 1; row < 3 && mine[0].isfinite().all().item<bool>(); ++row) {
          EXPECT_LT(distance(mine[row], all[static_cast<std::int64_t>(p)][row]), tolerance(GetParam()));
        }
        return all;
      };
      const at::Tensor part_x = leaf(x);
      const std::int64_t rows = ends[p + 1] - ends[p];
      const at::Tensor padding = at::full({2, 6}, 1e30, weight.options());
      const at::Tensor part_weight = leaf(at::cat({weight.narrow(0, ends[p], rows), padding}));
      const HeadOptions options = {0.2, 100, softcap, {ends[p], rows, vocab, gather}};
      const at::Tensor loss = head_loss(part_x, part_weight, targets, options);
      EXPECT_LT(distance(loss, expected), tolerance(GetParam())) << "part " << p;
      loss.backward();
      dx += part_x.grad();
      dweight.push_back(part_weight.grad().narrow(0, 0, rows));
      EXPECT_TRUE(at::equal(part_weight.grad().narrow(0, rows, 2), at::zeros_like(padding)));
    }
    EXPECT_LT(distance(dx, whole_x.grad()), 2 * tolerance(GetParam()));
    EXPECT_LT(distance(at::cat(dweight), whole_weight.grad()), tolerance(GetParam()));
  }
}

TEST_P(VocabularyParts, BothKernelsGiveTheSameStatisticsAndGradients) {
  const at::Tensor logits = random({7, vocab}, GetParam());
  const at::Tensor local = at::tensor(std::vector<std::int64_t>{0, ignored, 12, 13, 40, 3, 5});
  const at::Tensor own = cpu_kernels().logit_statistics(logits, local);
  const at::Tensor composite = composite_kernels().logit_statistics(logits, local);
  EXPECT_LT(distance(own, composite), 1e-6);
  EXPECT_EQ(own[2][3].item<double>(), 0);
  const at::Tensor longer = at::stack({own[0] + 0.5, own[1] + 2.0, own[2]});
  at::Tensor a = logits.clone();
  at::Tensor b = logits.clone();
  const at::Tensor loss_a = cpu_kernels().cross_entropy(a, local, {0.5, true, longer});
  const at::Tensor loss_b = composite_kernels().cross_entropy(b, local, {0.5, true, longer});
  EXPECT_LT(distance(loss_a, loss_b), 1e-6);
  EXPECT_LT(distance(a, b), tolerance(GetParam()));
}

TEST(VocabularyParts, RefuseTokensOfNoPart) {
  const at::Tensor x = random({1, 7, 6});
  const auto gather = [](const at::Tensor& mine) { return mine.unsqueeze(0); };
  const HeadOptions options = {1.0, 4, {}, {0, 5, 12, gather}};  // target 12 is one too many
  EXPECT_THROW(head_loss(x, random({5, 6}), targets, options), RunError);
  EXPECT_THROW(embed(random({5, 6}), at::full({1, 2}, 13, at::kLong), 5, 13), RunError);
}

TEST_P(VocabularyParts, OfATableAddUpToIt) {
  const at::Tensor ids = at::tensor(std::vector<std::int64_t>{4, 4, 0, 12, 9, 5}).view({2, 3});
  const at::Tensor table = random({vocab, 6}, GetParam());
  const at::Tensor whole = leaf(table);
  const at::Tensor dout = random({2, 3, 6}, GetParam(), 3);
  const at::Tensor expected = embed(whole, ids);
  expected.backward(dout);
  at::Tensor sum = at::zeros_like(expected);
  std::vector<at::Tensor> gradients;
  for (std::size_t p = 0; p + 1 < ends.size(); ++p) {
    const at::Tensor part = leaf(table.narrow(0, ends[p], ends[p + 1] - ends[p]));
    const at::Tensor out = embed(part, ids, ends[p], vocab);
    out.backward(dout);
    sum = sum + out.detach();
    gradients.push_back(part.grad());
  }
  EXPECT_TRUE(at::equal(sum, expected));
  EXPECT_TRUE(at::equal(at::cat(gradients), whole.grad()));
}

}  // namespace
}  // namespace ndmesh::nn
