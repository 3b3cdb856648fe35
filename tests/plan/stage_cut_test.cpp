#include "ndmesh/plan/stage_cut.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>

namespace ndmesh::plan {
namespace {

using testing::ElementsAre;

std::vector<std::int64_t> sizes(const std::vector<layout::Range>& stages) {
  std::vector<std::int64_t> result;
  for (const layout::Range& stage : stages) {
    result.push_back(stage.size);
  }
  return result;
}

TEST(StageCut, HeadWeighsAsTheLayersItCosts) {
  const std::vector<double> equal(8, 1.0);
  EXPECT_THAT(sizes(cheapest_cut(equal, 0, 4)), ElementsAre(2, 2, 2, 2));
  EXPECT_THAT(sizes(cheapest_cut(equal, 2, 2)), ElementsAre(5, 3));
  EXPECT_THAT(sizes(cheapest_cut(equal, 100, 2)), ElementsAre(7, 1));  // a stage has a layer
  EXPECT_THAT(sizes(cheapest_cut({1, 1, 5, 1, 1}, 0, 3)), ElementsAre(2, 1, 2));
}

/// The costliest stage of every cut into contiguous stages, by trying them all.
double least_of_all(const std::vector<double>& costs, double last, std::int64_t stages) {
  const std::function<double(std::size_t, std::int64_t)> best = [&](std::size_t start, std::int64_t left) {
    double least = 1e300;
    double stage = 0;
    for (std::size_t end = start + 1; end <= costs.size(); ++end) {
      stage += costs[end - 1];
      if (left == 1 && end == costs.size()) least = std::min(least, stage + last);
      if (left > 1) least = std::min(least, std::max(stage, best(end, left - 1)));
    }
    return least;
  };
  return best(0, stages);
}

TEST(StageCut, NoCutHasACheaperCostliestStage) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> cost(0.1, 3.0);
  for (int round = 0; round < 200; ++round) {
    std::vector<double> costs(1 + random() % 9);
    std::generate(costs.begin(), costs.end(), [&] { return cost(random); });
    const auto stages = 1 + static_cast<std::int64_t>(random() % costs.size());
    const double last = cost(random);
    const auto cut = cheapest_cut(costs, last, stages);
    double worst = 0;
    std::int64_t next = 0;
    for (std::size_t s = 0; s < cut.size(); ++s) {
      EXPECT_EQ(cut[s].start, next);
      EXPECT_GE(cut[s].size, 1);
      next += cut[s].size;
      const auto begin = costs.begin() + cut[s].start;
      worst = std::max(worst, std::accumulate(begin, begin + cut[s].size, s + 1 == cut.size() ? last : 0.0));
    }
    EXPECT_EQ(next, static_cast<std::int64_t>(costs.size()));
    EXPECT_NEAR(worst, least_of_all(costs, last, stages), 1e-12);
  }
}

TEST(StageCut, ALargeVocabularyTakesLayersOffTheLastStage) {
  job::Job job = job::parse_job("model: {preset: qwen3-0.6b}\nmesh: {pp_size: 2}\n", "a.yaml", {});
  const model::ModelSpec model = job::model_of(job);
  EXPECT_THAT(sizes(stage_cut(job, model)), ElementsAre(14, 14));
  job.pipeline.layers.policy = job::StageLayers::Policy::cost;
  // 6 x 15 728 640 operations a token in the products of a layer and 3 x 4096 x 256 in its attention; the head's 6 x
  // 151 936 x 1024 are 9.57 layers: 19 against 9 + 9.57, where 18 against 10 + 9.57 would be slower.
  EXPECT_THAT(sizes(stage_cut(job, model)), ElementsAre(19, 9));
  job.pipeline.layers = {job::StageLayers::Policy::given, {1, 27}};
  EXPECT_THAT(sizes(stage_cut(job, model)), ElementsAre(1, 27));
}

}  // namespace
}  // namespace ndmesh::plan
