#include "ndmesh/serve/sampler.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "ndmesh/base/error.h"

namespace ndmesh::serve {
namespace {

using testing::HasSubstr;

const std::vector<double> logits = {std::log(0.5), std::log(0.05), std::log(0.3), std::log(0.15)};

/// How often each token comes in `draws` draws.
std::map<std::int64_t, double> counts(const Sampling& sampling, int draws) {
  std::map<std::int64_t, double> count;
  for (int i = 0; i < draws; ++i) {
    ++count[sample(logits, sampling, i)];
  }
  return count;
}

TEST(Sample, GreedyTakesTheLargestAndTheLowestAmongEquals) {
  EXPECT_EQ(sample(logits, {}, 0), 0);
  EXPECT_EQ(sample(std::vector<double>{-3, 7, 7, 2}, {}, 5), 1);
  EXPECT_EQ(sample(std::vector<double>{-3}, {.temperature = 1}, 5), 0);
}

// Three standard deviations of a binomial, and chi square of 3 degrees of freedom at p = 0.001.
TEST(Sample, DrawsByProbability) {
  constexpr int draws = 20000;
  const std::vector<double> expected = {0.5, 0.05, 0.3, 0.15};
  const auto count = counts({.temperature = 1.0, .seed = 4}, draws);
  double chi_square = 0;
  for (std::size_t token = 0; token < expected.size(); ++token) {
    const double wanted = expected[token] * draws;
    chi_square += std::pow(count.at(static_cast<std::int64_t>(token)) - wanted, 2) / wanted;
  }
  EXPECT_LT(chi_square, 16.27);
}

// At temperature 0.5 probabilities are squared: 0.25, 0.0025, 0.09, 0.0225 of 0.365.
TEST(Sample, TemperatureSharpens) {
  constexpr int draws = 20000;
  const auto count = counts({.temperature = 0.5}, draws);
  EXPECT_NEAR(count.at(0) / draws, 0.25 / 0.365, 3 * std::sqrt(0.685 * 0.315 / draws));
  EXPECT_NEAR(count.at(2) / draws, 0.09 / 0.365, 3 * std::sqrt(0.247 * 0.753 / draws));
}

TEST(Sample, TopPKeepsTheSmallestSetThatReachesIt) {
  const auto kept = [](double top_p) {
    std::vector<std::int64_t> tokens;
    for (const auto& [token, count] : counts({.temperature = 1.0, .top_p = top_p}, 4000)) {
      tokens.push_back(token);
    }
    return tokens;
  };
  using testing::ElementsAre;
  EXPECT_THAT(kept(0.01), ElementsAre(0));
  EXPECT_THAT(kept(0.49), ElementsAre(0));
  EXPECT_THAT(kept(0.51), ElementsAre(0, 2));
  EXPECT_THAT(kept(0.79), ElementsAre(0, 2));
  EXPECT_THAT(kept(0.81), ElementsAre(0, 2, 3));
  EXPECT_THAT(kept(0.96), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(kept(1.0), ElementsAre(0, 1, 2, 3));
  // What is kept is drawn in its own proportions.
  EXPECT_NEAR(counts({.temperature = 1.0, .top_p = 0.6}, 20000).at(2) / 20000, 0.3 / 0.8, 0.0103);
}

TEST(Sample, DependsOnSeedAndIndexOnly) {
  const auto drawn = [](std::uint64_t seed) {
    std::vector<std::int64_t> tokens;
    for (std::uint64_t index = 0; index < 100; ++index) {
      tokens.push_back(sample(logits, {.temperature = 1.0, .seed = seed}, index));
    }
    return tokens;
  };
  EXPECT_EQ(drawn(1), drawn(1));
  EXPECT_NE(drawn(1), drawn(2));
}

TEST(Sample, SurvivesExtremes) {
  EXPECT_EQ(sample(std::vector<double>{-1e300, 1e300}, {.temperature = 1.0}, 0), 1);
  EXPECT_EQ(sample(logits, {.temperature = 1e-300}, 0), 0);
  EXPECT_EQ(sample(logits, {.temperature = 1.0, .top_p = 1e-300}, 0), 0);
  const std::int64_t any = sample(std::vector<double>{-1e300, 1e300}, {.temperature = 1e308}, 0);
  EXPECT_TRUE(any == 0 || any == 1);
}

TEST(Sample, RefusesLogitsThatAreNotFinite) {
  for (const double bad : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    EXPECT_THROW(sample(std::vector<double>{0, bad}, {}, 0), RunError);
    EXPECT_THROW(sample(std::vector<double>{0, bad}, {.temperature = 1.0}, 0), RunError);
  }
}

std::string refusal(const Sampling& sampling) {
  try {
    check(sampling);
  } catch (const RequestError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Sampling, RefusesImpossibleSettings) {
  EXPECT_EQ(refusal({.temperature = 2.5, .top_p = 1.0}), "accepted");
  EXPECT_THAT(refusal({.temperature = -1}), HasSubstr("temperature is -1"));
  EXPECT_THAT(refusal({.temperature = HUGE_VAL}), HasSubstr("temperature is inf"));
  EXPECT_THAT(refusal({.top_p = 0}), HasSubstr("top_p is 0"));
  EXPECT_THAT(refusal({.top_p = 1.5}), HasSubstr("top_p is 1.5"));
  const std::string both = refusal({.temperature = std::nan(""), .top_p = std::nan("")});
  EXPECT_THAT(both, HasSubstr("temperature is nan"));
  EXPECT_THAT(both, HasSubstr("top_p is nan"));
}

}  // namespace
}  // namespace ndmesh::serve
