#include <gtest/gtest.h>

#include <numeric>

#include "ndmesh/base/error.h"
#include "plan/memory_support.h"

/// Copies of parameters by runtime, zero stage, mesh and optimizer, against published rules.
namespace ndmesh::plan {
namespace {

using test::candidate_on;
using test::problem_of;
using test::states_of;

double states_per_parameter(const Problem& problem, const Candidate& candidate) {
  const MemoryBytes peaks = MemoryModel(problem).worst(candidate).peaks;
  return static_cast<double>(states_of(peaks)) / static_cast<double>(problem.model.parameter_count());
}

struct ZeroCase {
  std::string runtime;
  std::array<double, 4> bytes;  ///< a parameter, by zero stage, over 8 ranks
};

/// The table of the ZeRO paper (arXiv 1910.02054) for 2 + 2 + 12 bytes, and with float32 gradients 2 + 4 +
/// 12.
TEST(MemoryStates, BytesAParameterByZeroStage) {
  for (const ZeroCase& one :
       {ZeroCase{"deepspeed", {16.0, 5.5, 3.75, 2.0}}, ZeroCase{"megatron", {18.0, 7.5, 4.0, 2.25}},
        ZeroCase{"torchtitan", {16.0, 9.0, 5.5, 2.0}}}) {
    const Problem problem = problem_of(model::preset("llama-3-8b"), one.runtime);
    for (std::int64_t zero = 0; zero < 4; ++zero) {
      EXPECT_NEAR(states_per_parameter(problem, candidate_on({.dp_shard = 8}, zero)),
                  one.bytes[static_cast<std::size_t>(zero)], 2e-4)
          << one.runtime << " zero " << zero;
    }
  }
}

/// 16 bytes a parameter over 8 ranks: 141.1 GB each, more than an 80 GB device, and more than an H200 with
/// what a step needs: 131.4 GiB and 10 GiB of block inputs at 8192 tokens.
TEST(MemoryStates, SeventyBillionOnEightRanks) {
  const Problem problem = problem_of(model::preset("llama-3-70b"), "torchtitan", 8192);
  Candidate candidate = candidate_on({.dp_shard = 8}, 3);
  candidate.recompute.policy = job::Recompute::Policy::full;
  const StageBudget budget = MemoryModel(problem).worst(candidate);
  EXPECT_NEAR(static_cast<double>(states_of(budget.peaks)) / 1e9, 141.1, 0.05);
  EXPECT_NEAR(static_cast<double>(states_of(budget.peaks)) / test::gib, 131.4, 0.05);
  EXPECT_GT(static_cast<double>(budget.peaks[MemoryCategory::activations]) / test::gib, 10.0);
  EXPECT_GT(static_cast<double>(budget.reserved) / test::gib, 140.4);
}

/// Uneven ends: a tied table lives on the first and the last stage.
TEST(MemoryStates, TheMostLoadedStageNotTheAverage) {
  struct Case {
    std::string model;
    std::array<std::int64_t, 4> elements;
  };
  for (const Case& one : {Case{"llama-3.2-1b", {505954304, 243286016, 243286016, 505956352}},
                          Case{"llama-3-8b", {2270232576, 1744896000, 1744896000, 2270236672}}}) {
    const Problem problem = problem_of(model::preset(one.model), "megatron");
    const auto budgets = MemoryModel(problem).budgets(candidate_on({.pp = 4}));
    ASSERT_EQ(budgets.size(), 4U);
    for (std::size_t stage = 0; stage < 4; ++stage) {
      EXPECT_EQ(budgets[stage].peaks[MemoryCategory::parameters], 2 * one.elements[stage]) << one.model;
    }
  }
}

TEST(MemoryStates, ExpertsCountWhetherOrNotATokenMeetsThem) {
  const Problem problem = problem_of(model::preset("mixtral-8x7b"), "megatron");
  const StageBudget budget = MemoryModel(problem).worst(candidate_on({}));
  EXPECT_EQ(budget.peaks[MemoryCategory::parameters], 2 * std::int64_t{46702792704});
}

/// Experts are shared out over ep, and their states over what ep leaves of the ranks.
TEST(MemoryStates, ExpertsOverEp) {
  const Problem problem = problem_of(model::preset("mixtral-8x7b"), "megatron");
  const std::int64_t experts = std::int64_t{32} * 8 * 3 * 4096 * 14336;
  const std::int64_t dense = 46702792704 - experts;
  const StageBudget budget = MemoryModel(problem).worst(candidate_on({.dp_shard = 8, .ep = 4}, 1));
  EXPECT_EQ(budget.peaks[MemoryCategory::parameters], 2 * (dense + experts / 4));
  EXPECT_NEAR(static_cast<double>(budget.peaks[MemoryCategory::master_weights]),
              4.0 * (static_cast<double>(dense) / 8 + static_cast<double>(experts) / 4 / 2), 1e5);
}

/// A frozen base has its bfloat16 weights and nothing else.
TEST(MemoryStates, AdaptersOverAFrozenBase) {
  Problem problem = problem_of(model::preset("llama-3-8b"), "deepspeed");
  problem.adapter.rank = 16;
  const MemoryBytes peaks = MemoryModel(problem).worst(candidate_on({})).peaks;
  // By layer: (in + out) of q, k, v, o, gate, up and down, times the rank.
  const std::int64_t adapters = 32 * 16 * ((4096 + 4096) * 2 + (4096 + 1024) * 2 + (4096 + 14336) * 3);
  EXPECT_EQ(peaks[MemoryCategory::parameters], 2 * (8030261248 + adapters));
  EXPECT_EQ(peaks[MemoryCategory::gradients], 2 * adapters);
  EXPECT_EQ(peaks[MemoryCategory::master_weights], 4 * adapters);
  EXPECT_EQ(peaks[MemoryCategory::optimizer], 8 * adapters);
}

TEST(MemoryStates, MomentsByOptimizerAndPrecision) {
  const model::ModelSpec model = model::preset("llama-3-8b");
  const auto moments = [&](job::OptimizerName optimizer, bool bf16_states) {
    Problem problem = problem_of(model, "megatron");
    problem.optimizer = optimizer;
    problem.precision.bf16_states = bf16_states;
    return MemoryModel(problem).worst(candidate_on({})).peaks[MemoryCategory::optimizer];
  };
  const std::int64_t n = model.parameter_count();
  EXPECT_EQ(moments(job::OptimizerName::adamw, false), 8 * n);
  EXPECT_EQ(moments(job::OptimizerName::adamw, true), 4 * n);
  EXPECT_EQ(moments(job::OptimizerName::sgd, false), 4 * n);
  // Muon keeps one moment of the blocks' matrices, AdamW's two of tables, head and norms.
  const std::int64_t matrices = n - 2 * 128256 * 4096 - (2 * 32 + 1) * 4096;
  EXPECT_EQ(moments(job::OptimizerName::muon, false), 4 * matrices + 8 * (n - matrices));
}

/// 10 % of the bytes trained in float32: 1.0 + 0.1 + 0.2 of the weights' bytes.
TEST(MemoryStates, FrozenParametersAreTheirBytesOnly) {
  Problem problem = problem_of(model::preset("llama-3-8b"), "ndmesh");
  problem.precision.compute = DType::float32;
  problem.frozen = {"*.mlp.*", "*norm*", "model.*embed*", "lm_head.*", "*.o_proj.*", "*.q_*"};
  const MemoryBytes peaks = MemoryModel(problem).worst(candidate_on({})).peaks;
  const std::int64_t trained = std::int64_t{32} * 2 * 1024 * 4096;  // keys and values
  EXPECT_EQ(peaks[MemoryCategory::parameters], 4 * problem.model.parameter_count());
  EXPECT_EQ(peaks[MemoryCategory::gradients], 4 * trained);
  EXPECT_EQ(peaks[MemoryCategory::optimizer], 8 * trained);
}

TEST(MemoryStates, ShardsAddUpToTheModel) {
  Problem problem = problem_of(model::preset("llama-1m"), "torchtitan", 128);
  const MemoryModel memory(problem);
  for (const std::int64_t ranks : {2, 3, 7}) {
    const Candidate candidate = candidate_on({.dp_shard = ranks}, 3);
    std::int64_t parameters = 0;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      parameters += memory.budget_of(candidate, rank).peaks[MemoryCategory::parameters];
    }
    EXPECT_EQ(parameters, 4 * problem.model.parameter_count()) << ranks;
  }
}

/// Accumulating without reducing keeps every gradient whole; one micro-batch needs no such thing.
TEST(MemoryStates, AccumulatingWithoutReducingKeepsWholeGradients) {
  Problem problem = problem_of(model::preset("llama-3-8b"), "accelerate");
  const std::int64_t n = problem.model.parameter_count();
  const Candidate candidate = candidate_on({.dp_shard = 16}, 2);
  problem.global_batch = 64;
  const auto gradients = [&] {
    return MemoryModel(problem).worst(candidate).peaks[MemoryCategory::gradients];
  };
  EXPECT_NEAR(static_cast<double>(gradients()),
              4.0 * static_cast<double>(n) / 16 + 2.0 * static_cast<double>(n), 1e6);
  problem.global_batch = 16;
  EXPECT_NEAR(static_cast<double>(gradients()), 4.0 * static_cast<double>(n) / 16, 1e6);
}

TEST(MemoryStates, OffloadMovesBytesToTheHost) {
  const Problem problem = problem_of(model::preset("llama-3-8b"), "deepspeed");
  Candidate candidate = candidate_on({.dp_shard = 8}, 3);
  const MemoryModel memory(problem);
  const StageBudget kept = memory.worst(candidate);
  candidate.offload = job::Offload::optimizer;
  const StageBudget optimizer = memory.worst(candidate);
  EXPECT_EQ(kept.host_bytes, 0);
  EXPECT_NEAR(static_cast<double>(optimizer.host_bytes), 12.0 * 8030261248 / 8, 1e6);
  EXPECT_EQ(states_of(optimizer.peaks) + optimizer.host_bytes, states_of(kept.peaks));
  candidate.offload = job::Offload::all;
  const StageBudget all = memory.worst(candidate);
  EXPECT_EQ(states_of(all.peaks), 0);
  EXPECT_EQ(all.host_bytes, states_of(kept.peaks));
}

TEST(MemoryStates, UnknownRuntime) {
  try {
    profile("megatrom");
    FAIL();
  } catch (const RequestError& error) {
    EXPECT_NE(std::string(error.what()).find("megatron"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("torchtitan"), std::string::npos);
  }
}

}  // namespace
}  // namespace ndmesh::plan
