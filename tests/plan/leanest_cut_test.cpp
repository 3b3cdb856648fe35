#include "ndmesh/plan/memory/leanest_cut.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <random>

#include "ndmesh/plan/stage_cut.h"
#include "plan/memory_support.h"

namespace ndmesh::plan {
namespace {

using testing::ElementsAre;
using Policy = job::StageLayers::Policy;
using Sizes = std::vector<std::int64_t>;

Sizes sizes_of(const std::vector<layout::Range>& cut) {
  Sizes sizes;
  for (const layout::Range& stage : cut) sizes.push_back(stage.size);
  return sizes;
}

/// Every way to write `total` as `count` numbers of at least `least`.
void each_sum(std::int64_t total, std::int64_t count, std::int64_t least,
              const std::function<void(const Sizes&)>& visit, Sizes so_far = {}) {
  if (count == 1) {
    so_far.push_back(total);
    return visit(so_far);
  }
  for (std::int64_t first = least; first <= total - least * (count - 1); ++first) {
    Sizes next = so_far;
    next.push_back(first);
    each_sum(total - first, count - 1, least, visit, next);
  }
}

/// What the fullest rank reserves when stages are cut as given.
std::int64_t reserved_with(Problem problem, const Candidate& candidate, const Sizes& sizes) {
  problem.layers = {Policy::given, sizes};
  return MemoryModel(problem).worst(candidate).reserved;
}

/// Of a token, in the costliest stage.
double cost_of(const Problem& problem, const Sizes& sizes) {
  const LayerCosts costs(problem);
  double most = 0;
  const std::vector<layout::Range> cut = stages_of(sizes);
  for (std::size_t stage = 0; stage < cut.size(); ++stage) {
    most = std::max(most, costs.of(cut[stage]) + (stage + 1 == cut.size() ? costs.last() : 0));
  }
  return most;
}

/// A model of few layers, dense or with some layers of experts, whose head may outweigh them.
Problem random_problem(std::mt19937& random) {
  const auto pick = [&](std::int64_t least, std::int64_t most) {
    return least + static_cast<std::int64_t>(random() % static_cast<unsigned>(most - least + 1));
  };
  model::ModelSpec model = model::preset(pick(0, 1) == 0 ? "llama-1b" : "mixtral-8x7b");
  model.layers = pick(4, 9);
  model.vocab = std::int64_t{1000} << pick(0, 8);
  model.tied = pick(0, 1) == 0;
  if (model.experts) {
    model.experts->layers.clear();
    for (std::int64_t layer = 0; layer < model.layers; ++layer) {
      model.experts->layers.push_back(pick(0, 1) == 0);
    }
  }
  Problem problem = test::problem_of(model, "ndmesh", 1024);
  problem.global_batch = pick(1, 3) * 8;
  return problem;
}

Candidate random_candidate(std::mt19937& random, const Problem& problem) {
  const auto pick = [&](unsigned count) { return static_cast<std::int64_t>(random() % count); };
  Candidate candidate = test::candidate_on({.dp_shard = 1 + pick(2), .pp = 2 + pick(3)}, pick(4));
  candidate.schedule = std::array{schedule::Kind::gpipe, schedule::Kind::one_f_one_b,
                                  schedule::Kind::zb_h1}[static_cast<std::size_t>(pick(3))];
  using Recompute = job::Recompute::Policy;
  candidate.recompute = {std::array{Recompute::none, Recompute::full, Recompute::every,
                                    Recompute::budget}[static_cast<std::size_t>(pick(4))],
                         1 + pick(3), pick(8) << 28};
  candidate.mesh.pp = std::min(candidate.mesh.pp, problem.model.layers);
  return candidate;
}

TEST(LeanestCut, NoCutHasALeanerFullestRank) {
  std::mt19937 random(3);
  for (int round = 0; round < 60; ++round) {
    Problem problem = random_problem(random);
    const Candidate candidate = random_candidate(random, problem);
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    double cheapest = 0;
    each_sum(problem.model.layers, candidate.mesh.pp, 1, [&](const Sizes& sizes) {
      const std::int64_t reserved = reserved_with(problem, candidate, sizes);
      const double cost = cost_of(problem, sizes);
      cheapest = reserved < least ? cost : reserved == least ? std::min(cheapest, cost) : cheapest;
      least = std::min(least, reserved);
    });
    problem.layers.policy = Policy::memory;
    const MemoryModel memory(problem);
    EXPECT_EQ(memory.worst(candidate).reserved, least) << round;
    EXPECT_EQ(cost_of(problem, sizes_of(memory.stages(candidate))), cheapest) << round;
    EXPECT_LE(memory.least_bytes(candidate), least) << round;
  }
}

/// Of the cuts that deal a rank's layers out evenly over its chunks, of a model whose layers are alike.
TEST(LeanestCut, OfSeveralChunksTheLeanestThatDealsRanksOutEvenly) {
  std::mt19937 random(4);
  for (int round = 0; round < 40; ++round) {
    Problem problem = random_problem(random);
    problem.model.experts.reset();
    problem.model.layers += 4;
    Candidate candidate = random_candidate(random, problem);
    candidate.mesh.pp = 2 + round % 2;
    candidate.schedule = round % 3 == 0 ? schedule::Kind::zb_v : schedule::Kind::interleaved;
    candidate.chunks = 2;
    candidate.micro = 1;
    const schedule::Shape shape = schedule_shape(problem, candidate);
    if (!schedule::problems_of(shape).empty()) continue;
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    each_sum(problem.model.layers, shape.ranks, shape.chunks, [&](const Sizes& of_ranks) {
      Sizes sizes;
      for (std::int64_t stage = 0; stage < shape.stages(); ++stage) {
        const std::int64_t layers = of_ranks[static_cast<std::size_t>(shape.rank_of(stage))];
        sizes.push_back(shape.chunk_of(stage) == 0 ? (layers + 1) / 2 : layers / 2);
      }
      least = std::min(least, reserved_with(problem, candidate, sizes));
    });
    const Sizes even = sizes_of(layout::even_stages(problem.model.layers, shape.stages()));
    least = std::min(least, reserved_with(problem, candidate, even));
    problem.layers.policy = Policy::memory;
    EXPECT_EQ(MemoryModel(problem).worst(candidate).reserved, least) << round;
  }
}

TEST(LeanestCut, WhereStatesWeighMoreThanOperations) {
  const auto cut = [](const std::string& preset, const std::string& keys, const std::string& layers) {
    const job::Job job = job::parse_job("model: {preset: " + preset + "}\nbatch: {global: 16, micro: 1}\n" +
                                            keys + "pipeline: {schedule: 1f1b, layers: " + layers + "}\n",
                                        "a.yaml", {});
    return sizes_of(stage_cut(job, job::model_of(job)));
  };
  const std::string two = "mesh: {pp_size: 2}\n";
  const std::string four = "mesh: {pp_size: 4}\n";
  EXPECT_THAT(cut("qwen3-0.6b", two, "even"), ElementsAre(14, 14));
  EXPECT_THAT(cut("qwen3-0.6b", two, "cost"), ElementsAre(19, 9));
  // Both ends hold the tied table of 155 582 464 numbers, 9.9 layers of 15 730 944: (28 + 2 x 9.9) / 4 = 11.9 on each rank.
  EXPECT_THAT(cut("qwen3-0.6b", two, "memory"), ElementsAre(14, 14));
  EXPECT_THAT(cut("qwen3-0.6b", four, "cost"), ElementsAre(9, 9, 9, 1));
  EXPECT_THAT(cut("qwen3-0.6b", four, "memory"), ElementsAre(2, 12, 12, 2));
  // Table and head are 2.4 layers each: (32 + 2 x 2.4) / 4 = 9.2, and earlier ranks keep more micro-batches.
  EXPECT_THAT(cut("llama-3-8b", four, "cost"), ElementsAre(9, 9, 9, 5));
  EXPECT_THAT(cut("llama-3-8b", four, "memory"), ElementsAre(6, 9, 10, 7));
}

}  // namespace
}  // namespace ndmesh::plan
