#include "ndmesh/plan/measured/rank_statistics.h"

#include <gmock/gmock.h>

#include <cmath>

#include "ndmesh/base/hash.h"

namespace ndmesh::plan {
namespace {

/// By the definition, pair by pair.
std::optional<double> tau_by_pairs(const std::vector<double>& x, const std::vector<double>& y) {
  double score = 0;
  double untied_x = 0;
  double untied_y = 0;
  const auto sign = [](double v) { return v > 0 ? 1.0 : v < 0 ? -1.0 : 0.0; };
  for (std::size_t i = 0; i < x.size(); ++i) {
    for (std::size_t j = i + 1; j < x.size(); ++j) {
      score += sign(x[i] - x[j]) * sign(y[i] - y[j]);
      untied_x += x[i] != x[j];
      untied_y += y[i] != y[j];
    }
  }
  if (untied_x == 0 || untied_y == 0) return std::nullopt;
  return score / std::sqrt(untied_x * untied_y);
}

TEST(KendallTau, KnownValues) {
  EXPECT_DOUBLE_EQ(*kendall_tau_b({1, 2, 3, 4}, {10, 20, 30, 40}), 1);
  EXPECT_DOUBLE_EQ(*kendall_tau_b({1, 2, 3, 4}, {4, 3, 2, 1}), -1);
  EXPECT_DOUBLE_EQ(*kendall_tau_b({1, 2, 3}, {1, 3, 2}), 1.0 / 3);
  // scipy.stats.kendalltau([12, 2, 1, 12, 2], [1, 4, 7, 1, 0]) of its documentation.
  EXPECT_NEAR(*kendall_tau_b({12, 2, 1, 12, 2}, {1, 4, 7, 1, 0}), -0.47140452079103173, 1e-15);
}

TEST(KendallTau, NothingToOrder) {
  EXPECT_FALSE(kendall_tau_b({}, {}));
  EXPECT_FALSE(kendall_tau_b({1}, {1}));
  EXPECT_FALSE(kendall_tau_b({1, 1, 1}, {1, 2, 3}));
  EXPECT_FALSE(kendall_tau_b({1, 2, 3}, {5, 5, 5}));
}

TEST(KendallTau, EqualsTheDefinitionOnRandomListsWithTies) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const std::size_t count = 2 + random_at(seed, 0) % 30;
    const std::uint64_t values = 1 + random_at(seed, 1) % 12;
    std::vector<double> x, y;
    for (std::size_t i = 0; i < count; ++i) {
      x.push_back(static_cast<double>(random_at(seed, 2 + 2 * i) % values));
      y.push_back(static_cast<double>(random_at(seed, 3 + 2 * i) % values));
    }
    const auto expected = tau_by_pairs(x, y);
    const auto tau = kendall_tau_b(x, y);
    ASSERT_EQ(tau.has_value(), expected.has_value()) << seed;
    if (tau) {
      EXPECT_NEAR(*tau, *expected, 1e-12) << seed;
    }
  }
}

TEST(Regret, TimeOfThePickOverTheBest) {
  EXPECT_DOUBLE_EQ(regret({1, 2, 3}, {10, 11, 12}), 0);
  EXPECT_DOUBLE_EQ(regret({3, 2, 1}, {10, 11, 12}), 0.2);
  EXPECT_DOUBLE_EQ(regret({1, 1, 3}, {10, 12, 9}), 11.0 / 9 - 1);  // a tie counts by its mean
  EXPECT_DOUBLE_EQ(regret({5}, {7}), 0);
}

TEST(WeightedMean, ValueAndInterval) {
  const WeightedMean one = weighted_mean({4}, {2});
  EXPECT_DOUBLE_EQ(one.value, 4);
  EXPECT_DOUBLE_EQ(one.low, 4);
  EXPECT_DOUBLE_EQ(one.high, 4);
  EXPECT_DOUBLE_EQ(weighted_mean({1, 4}, {2, 1}).value, 2);

  // Of n draws from a fair coin the mean has the standard deviation 1 / (2 sqrt(n)); 90 % lie within 1.645 of
  // it.
  std::vector<double> coin;
  for (int i = 0; i < 400; ++i) coin.push_back(i % 2);
  const WeightedMean mean = weighted_mean(coin, std::vector<double>(coin.size(), 1.0));
  EXPECT_DOUBLE_EQ(mean.value, 0.5);
  EXPECT_NEAR(mean.low, 0.5 - 1.645 / 40, 0.006);
  EXPECT_NEAR(mean.high, 0.5 + 1.645 / 40, 0.006);
}

}  // namespace
}  // namespace ndmesh::plan
