#include <limits>

#include "comm/support.h"

namespace ndmesh::comm {
namespace {

/// 256 and then ones: partial sums in bfloat16 would stay at 256 (cases of the field: gradient reduction at
/// scale).
TEST(Numerics, Bf16GradientsAddUpInFloat32) {
  run(16, [](Communicator& c) {
    const at::Tensor mine = at::full({16}, c.rank() == 0 ? 256.0 : 1.0, at::kBFloat16);
    const at::Tensor wide = at::zeros({1}, at::kFloat);
    c.everyone().reduce_scatter({wide}, {mine}, false, "gradients");
    EXPECT_EQ(wide.item<float>(), 271);
    const at::Tensor narrow = at::zeros({1}, at::kBFloat16);
    c.everyone().reduce_scatter({narrow}, {mine}, false, "gradients");
    EXPECT_EQ(narrow.item<float>(), 272);  // 271 is halfway between 270 and 272; to even
    at::Tensor in_place = mine.clone();
    c.everyone().all_reduce({in_place}, Reduction::sum, "gradients");
    EXPECT_EQ(in_place[3].item<float>(), 272);
  });
}

TEST(Numerics, AccumulatedMicroBatchesStayInFloat32) {
  run(1, [](Communicator& c) {
    const auto add_ones = [&](const at::Tensor& sum, int count) {
      for (int micro_batch = 0; micro_batch < count; ++micro_batch) {
        c.everyone().reduce_scatter({sum}, {at::ones({1}, at::kBFloat16)}, true, "gradients");
      }
      return sum.item<float>();
    };
    EXPECT_EQ(add_ones(at::full({1}, 256.0, at::kFloat), 255), 511);
    EXPECT_EQ(add_ones(at::zeros({1}, at::kFloat), 512), 512);  // in bfloat16 it would stop at 256
  });
}

TEST(Numerics, SlowSumOver256RanksIsExact) {
  run(256, [](Communicator& c) {
    const double mine = c.rank() == 0 ? 256.0 : 1.0;
    const at::Tensor wide = at::zeros({1}, at::kFloat);
    c.everyone().reduce_scatter({wide}, {at::full({256}, mine, at::kBFloat16)}, false, "gradients");
    EXPECT_EQ(wide.item<float>(), 511);
    at::Tensor narrow = at::full({1}, mine, at::kBFloat16);
    c.everyone().all_reduce({narrow}, Reduction::sum, "gradients");
    EXPECT_EQ(narrow.item<float>(), 512);
  });
}

TEST(Numerics, SumsFollowRankOrderBitwise) {
  constexpr std::int64_t ranks = 5, count = 40000;
  std::vector<at::Tensor> inputs;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    inputs.push_back(at::randn({count}, at::kFloat) * std::pow(10.0, static_cast<double>(rank)));
  }
  at::Tensor expected = inputs[0].clone();
  for (std::size_t rank = 1; rank < ranks; ++rank) {
    expected = expected + inputs[rank];
  }
  for (int turn = 0; turn < 3; ++turn) {
    run(ranks, [&](Communicator& c) {
      at::Tensor sum = inputs[static_cast<std::size_t>(c.rank())].clone();
      const at::Tensor part = at::empty({count / ranks}, at::kFloat);
      c.everyone().reduce_scatter({part}, {sum}, false, "gradients");
      EXPECT_TRUE(at::equal(part, rows(expected, ranks, c.rank())));
      c.everyone().all_reduce({sum}, Reduction::sum, "gradients");
      EXPECT_TRUE(at::equal(sum, expected));
    });
  }
}

TEST(Numerics, DoubleBecomesBf16ByOneRounding) {
  // 1 + 2^-8 is halfway between two bfloat16 numbers; the 2^-40 above it is lost by a detour over float32.
  const double above_half = 1 + std::ldexp(1.0, -8) + std::ldexp(1.0, -40);
  run(1, [&](Communicator& c) {
    const at::Tensor out = at::empty({3}, at::kBFloat16);
    const at::Tensor in = at::tensor({above_half, -above_half, 1 + std::ldexp(1.0, -8)}, at::kDouble);
    c.everyone().all_gather({out}, {in}, "parameters");
    EXPECT_EQ(out[0].item<float>(), 1 + 1.0 / 128);
    EXPECT_EQ(out[1].item<float>(), -1 - 1.0 / 128);
    EXPECT_EQ(out[2].item<float>(), 1);
  });
}

TEST(Numerics, InfinitiesAndNaNsSurvive) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  run(2, [&](Communicator& c) {
    for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
      const auto of = [&](std::vector<double> v) { return at::tensor(v, at::kDouble).to(dtype); };
      at::Tensor sum = of(c.rank() == 0 ? std::vector{inf, inf, nan, 1.0} : std::vector{1.0, -inf, 1.0, nan});
      at::Tensor max = sum.clone();
      c.everyone().all_reduce({sum}, Reduction::sum, "sum");
      c.everyone().all_reduce({max}, Reduction::max, "max");
      EXPECT_TRUE(at::equal(sum.isnan(), at::tensor({0, 1, 1, 1}, at::kInt).to(at::kBool))) << dtype;
      EXPECT_EQ(sum[0].item<double>(), inf) << dtype;
      EXPECT_TRUE(at::equal(max.isnan(), at::tensor({0, 0, 1, 1}, at::kInt).to(at::kBool))) << dtype;
      EXPECT_EQ(max[1].item<double>(), inf) << dtype;
    }
  });
}

/// Two halves, since ATen would hand more elements at a time to threads that the thread sanitizer does not
/// know.
class EveryBitPattern : public testing::TestWithParam<std::int64_t> {};
INSTANTIATE_TEST_SUITE_P(Halves, EveryBitPattern, testing::Values(-32768, 0));

TEST_P(EveryBitPattern, OfSixteenBitsConvertsExactly) {
  const at::Tensor bits = at::arange(GetParam(), GetParam() + 32768, at::kShort);
  run(1, [&](Communicator& c) {
    for (const at::Tensor& narrow : {bits.view(at::kHalf), bits.view(at::kBFloat16)}) {
      const at::Tensor wide = at::empty({32768}, at::kFloat);
      const at::Tensor back = at::empty({32768}, narrow.scalar_type());
      c.everyone().all_gather({wide}, {narrow}, "widen");
      c.everyone().all_gather({back}, {wide}, "narrow");
      const at::Tensor numbers = narrow.isnan().logical_not();
      EXPECT_TRUE(at::equal(wide.masked_select(numbers), narrow.to(at::kFloat).masked_select(numbers)));
      EXPECT_TRUE(at::equal(back.masked_select(numbers), narrow.masked_select(numbers)));
      EXPECT_TRUE(at::equal(back.isnan(), narrow.isnan()));
    }
  });
}

}  // namespace
}  // namespace ndmesh::comm
