#include "ndmesh/plan/time/op_time.h"

#include <gtest/gtest.h>

#include "ndmesh/base/error.h"
#include "plan/time_support.h"

namespace ndmesh::plan {
namespace {

/// A device with the data sheet of its architecture's flagship; large products alone reach `efficiency` of its peak.
Rates rates_of_device(const std::string& architecture, double peak, double bandwidth, double efficiency) {
  Problem problem = test::small_problem(test::two_levels(1, 8, 300e9, 0));
  problem.cluster.device.architecture = architecture;
  problem.cluster.device.bf16_flops = peak;
  problem.cluster.device.memory_bandwidth = bandwidth;
  Constants constants = constants_for(problem.cluster, "megatron");
  constants.at("matmul_efficiency") = efficiency;
  constants.at("memory_efficiency") = 0.8;
  return rates_of(problem, constants);
}

double share_of_peak(const Rates& rates, double peak, const Product& product) {
  return product.flops() / product_seconds(rates, product, rates.product_flops) / peak;
}

// Medians of measured products with n, k >= 4096 (aiconfigurator's op tables): share of the dense bf16 peak by m.
TEST(ProductTime, ShareOfPeakByRowsOnAnA100) {
  const Rates rates = rates_of_device("Ampere", 312e12, 2039e9, 0.87);
  const auto share = [&](double m) { return share_of_peak(rates, 312e12, {m, 8192, 8192}); };
  EXPECT_NEAR(share(16), 0.077, 0.02);
  EXPECT_NEAR(share(128), 0.51, 0.13);
  EXPECT_NEAR(share(512), 0.80, 0.10);
  EXPECT_NEAR(share(4096), 0.84, 0.06);
}

TEST(ProductTime, ShareOfPeakByRowsOnAnH100) {
  const Rates rates = rates_of_device("Hopper", 989e12, 3350e9, 0.80);
  const auto share = [&](double m) { return share_of_peak(rates, 989e12, {m, 8192, 8192}); };
  EXPECT_NEAR(share(16), 0.043, 0.01);
  EXPECT_NEAR(share(128), 0.33, 0.08);
  EXPECT_NEAR(share(1024), 0.76, 0.10);
  EXPECT_NEAR(share(8192), 0.79, 0.06);
}

// With n or k of 512 and less the measured median never passes about 0.3, whatever m.
TEST(ProductTime, ThinProductsAreSlow) {
  const Rates rates = rates_of_device("Hopper", 989e12, 3350e9, 0.80);
  EXPECT_LT(share_of_peak(rates, 989e12, {4096, 256, 1024}), 0.35);
  EXPECT_LT(share_of_peak(rates, 989e12, {4096, 8192, 128}), 0.35);
}

TEST(ProductTime, NeverFasterThanPeakOrMemory) {
  const Rates rates = rates_of_device("Ampere", 312e12, 2039e9, 0.87);
  for (const double m : {1.0, 64.0, 1000.0, 4096.0}) {
    for (const double n : {32.0, 500.0, 8192.0}) {
      for (const double k : {64.0, 777.0, 8192.0}) {
        const double seconds = product_seconds(rates, {m, n, k}, rates.product_flops);
        EXPECT_GE(seconds, 2 * m * n * k / 312e12);
        EXPECT_GE(seconds, 2 * (m * n + n * k + m * k) / 2039e9);
      }
    }
  }
}

// 4 b s^2 h FLOPs, half of them behind the causal mask.
TEST(AttentionTime, CausalFlops) {
  const AttentionShape shape{
      .tokens = 4096, .heads = 32, .context = 2048, .query_dim = 128, .value_dim = 128};
  EXPECT_DOUBLE_EQ(shape.flops(), 4.0 * 4096 * 4096 * 4096 / 2);
}

// FlashAttention-2 on an A100, causal, head dim 128, 16K tokens: about 190 to 200 TFLOP/s forward, 170 to 180 backward.
TEST(AttentionTime, FlashAttention2OnAnA100) {
  const Rates rates = rates_of_device("Ampere", 312e12, 2039e9, 0.87);
  Rates flash2 = rates;
  flash2.flash_forward = 312e12 * 0.65;
  flash2.flash_backward = flash2.flash_forward * 0.8;
  const AttentionShape shape{
      .tokens = 16384, .heads = 16, .context = 8192, .query_dim = 128, .value_dim = 128};
  EXPECT_NEAR(shape.flops() / flash_forward_seconds(flash2, shape), 195e12, 20e12);
  EXPECT_NEAR(2.5 * shape.flops() / flash_backward_seconds(flash2, shape), 170e12, 25e12);
}

TEST(AttentionTime, SmallHeadsAreSlower) {
  const Rates rates = rates_of_device("Ampere", 312e12, 2039e9, 0.87);
  const AttentionShape wide{.tokens = 4096, .heads = 16, .context = 2048, .query_dim = 128, .value_dim = 128};
  const AttentionShape narrow{.tokens = 4096, .heads = 32, .context = 2048, .query_dim = 64, .value_dim = 64};
  EXPECT_LT(flash_forward_seconds(rates, wide), flash_forward_seconds(rates, narrow));
}

TEST(MoveTime, BytesOverBandwidth) {
  Problem problem = test::small_problem(test::two_levels(1, 8, 300e9, 0));
  Constants constants = test::ideal(problem.cluster);
  constants.at("memory_efficiency") = 0.5;
  EXPECT_DOUBLE_EQ(move_seconds(rates_of(problem, constants), 1e9), 2e-3);
}

TEST(Rates, UnknownFiguresAreAllNamed) {
  Problem problem = test::small_problem(test::two_levels(1, 8, 300e9, 0));
  problem.cluster.device.name = "Foo 9000";
  problem.cluster.device.bf16_flops = 0;
  problem.cluster.device.memory_bandwidth = 0;
  problem.precision.fp8_products = true;
  try {
    rates_of(problem, constants_for(problem.cluster, "megatron"));
    FAIL() << "no error";
  } catch (const RequestError& error) {
    EXPECT_EQ(error.problems().size(), 3u);
    EXPECT_NE(std::string(error.what()).find("Foo 9000"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("precision.dtype"), std::string::npos);
  }
}

}  // namespace
}  // namespace ndmesh::plan
