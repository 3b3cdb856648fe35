#include <gtest/gtest.h>

#include <random>

#include "plan/memory_support.h"

/// Budgets as a whole: instants, verdicts, properties over random candidates, and peaks that others measured.
namespace ndmesh::plan {
namespace {

using Policy = job::Recompute::Policy;
using test::candidate_on;
using test::gib;
using test::problem_of;
using test::states_of;

std::int64_t activations(const Problem& problem, const Candidate& candidate, std::int64_t stage = 0) {
  return MemoryModel(problem)
      .budgets(candidate)[static_cast<std::size_t>(stage)]
      .peaks[MemoryCategory::activations];
}

/// 8192 tokens of a vocabulary of 128256: bfloat16, float32 and its gradient; in 64 bits beyond 2^31
/// elements.
TEST(MemoryModel, EveryLiveCopyOfTheLogits) {
  Problem problem = problem_of(model::preset("llama-3.2-1b"), "torchtitan", 8192);
  problem.profile.memory.logits_in_compute = 1;
  problem.profile.memory.logits_wide = 2;
  const auto logits = [&] {
    return MemoryModel(problem).worst(candidate_on({})).peaks[MemoryCategory::logits];
  };
  EXPECT_EQ(logits(), 10506731520);
  problem.loss_chunk = 1024;
  EXPECT_EQ(logits(), 10506731520 / 8);
  problem.loss_chunk = 0;
  problem.seq_len = 65536;
  problem.model.vocab = 50257;
  problem.profile.memory.logits_in_compute = 0;
  problem.profile.memory.logits_wide = 1;
  EXPECT_EQ(logits(), 13174571008);
  problem.seq_len = 8192;
  problem.model.vocab = 151936;
  EXPECT_EQ(logits(), 4978638848);
  problem.loss_chunk = 1024;
  EXPECT_EQ(logits(), 622329856);
  problem.loss_chunk = 0;
  problem.profile.memory.logits_in_compute = 1;
  problem.profile.memory.logits_wide = 0;
  EXPECT_EQ(logits(), 2489319424);
}

/// On the stage that has the head, and by parts of the vocabulary under tp.
TEST(MemoryModel, LogitsLieWithTheHead) {
  Problem problem = problem_of(model::preset("llama-3-8b"), "torchtitan", 8192);
  problem.profile.memory.logits_in_compute = 1;
  problem.profile.memory.logits_wide = 2;
  const MemoryModel memory(problem);
  const auto logits = [&](const mesh::MeshSizes& sizes) {
    std::vector<std::int64_t> stages;
    for (const StageBudget& budget : memory.budgets(candidate_on(sizes))) {
      stages.push_back(budget.peaks[MemoryCategory::logits]);
    }
    return stages;
  };
  EXPECT_EQ(logits({.pp = 4}), (std::vector<std::int64_t>{0, 0, 0, 10506731520}));
  EXPECT_EQ(logits({.tp = 2, .pp = 2}), (std::vector<std::int64_t>{0, 10506731520 / 2}));
}

/// The last number of elements below 2^31 and the first above follow one formula; tensors take whole 64 bytes.
TEST(MemoryModel, LogitsOfMoreThan31Bits) {
  Problem problem = problem_of(model::preset("llama-1m"), "torchtitan");
  problem.model.vocab = 50257;
  problem.profile.memory.logits_in_compute = 0;
  problem.profile.memory.logits_wide = 1;
  for (const auto& [tokens, elements] :
       {std::pair(42730, std::int64_t{2147481610}), std::pair(42731, std::int64_t{2147531867})}) {
    problem.seq_len = tokens;
    EXPECT_EQ(MemoryModel(problem).worst(candidate_on({})).peaks[MemoryCategory::logits],
              (4 * elements + 63) / 64 * 64);
  }
}

/// The moments exist from the second step on, and decide: 14 bytes a parameter and 9.785 GiB of logits are
/// more than the 22.488 GiB of the device; without full logits 16 bytes a parameter fit.
TEST(MemoryModel, FitsMeansSteadyState) {
  Problem problem = problem_of(model::preset("llama-3.2-1b"), "deepspeed", 8192);
  problem.global_batch = 1;
  problem.cluster.usable_bytes = std::int64_t{23028} << 20;
  MemoryProfile& profile = problem.profile.memory;
  profile.frees_gradients = true;
  profile.logits_wide = 2;
  profile.bucket_bytes = 0;
  Candidate candidate = candidate_on({});
  candidate.recompute.policy = Policy::full;
  const StageBudget unfused = MemoryModel(problem).worst(candidate);
  const std::int64_t n = problem.model.parameter_count();
  EXPECT_GT(unfused.at_peak.total(), 14 * n + 10506731520);
  EXPECT_GT(unfused.reserved, allowed_bytes(problem));
  profile.logits_in_compute = profile.logits_wide = 0;
  const StageBudget fused = MemoryModel(problem).worst(candidate);
  EXPECT_GT(fused.at_peak.total(), 16 * n);
  EXPECT_LE(fused.reserved, allowed_bytes(problem));
}

TEST(MemoryModel, AllowedIsWhatTheDriverReportsLessHeadroom) {
  Problem problem = problem_of(model::preset("llama-1m"), "megatron");
  problem.cluster.usable_bytes = 85520809984;  // an H100 of "80 GB"
  EXPECT_EQ(allowed_bytes(problem), 85520809984);
  problem.headroom = 0.05;
  EXPECT_EQ(allowed_bytes(problem), 81244769484);
}

struct Measured {
  std::string name;
  mesh::MeshSizes mesh;
  std::int64_t seq_len;
  std::vector<double> stages;  ///< GiB, peak allocated
};

/// Peaks of Megatron-Core with Transformer Engine on 8 B200, micro-batch 1, distributed optimizer, fused
/// cross entropy: SimuMax 1.2's published measurements (docs/b200), two figures a stage.
void expect_peaks(const model::ModelSpec& model, const std::vector<Measured>& rows) {
  for (const Measured& row : rows) {
    Problem problem = problem_of(model, "megatron", row.seq_len);
    problem.global_batch = 8 * row.mesh.dp_shard;
    problem.context = job::ContextKind::alltoall;
    const auto budgets = MemoryModel(problem).budgets(candidate_on(row.mesh, 1));
    ASSERT_EQ(budgets.size(), row.stages.size());
    for (std::size_t stage = 0; stage < budgets.size(); ++stage) {
      EXPECT_NEAR(static_cast<double>(budgets[stage].at_peak.total()) / gib / row.stages[stage], 1.0, 0.01)
          << row.name << " stage " << stage;
    }
  }
}

TEST(MemoryModel, MeasuredPeaksOfDenseModels) {
  model::ModelSpec model = model::preset("llama-3-70b");
  model.layers = 12;
  expect_peaks(model, {{"70b tp4", {.tp = 4, .dp_shard = 2}, 4096, {39.07}},
                       {"70b pp2", {.dp_shard = 4, .pp = 2}, 4096, {66.55, 62.97}},
                       {"70b cp8", {.cp = 8}, 32768, {104.51}}});
  model = model::preset("llama-3.1-405b");
  model.layers = 4;
  model.kv_heads = 16;  // as in the source
  expect_peaks(model, {{"405b tp2", {.tp = 2, .dp_shard = 4}, 4096, {81.59}},
                       {"405b tp8", {.tp = 8}, 4096, {38.57}},
                       {"405b pp2", {.dp_shard = 4, .pp = 2}, 4096, {86.61, 87.08}},
                       {"405b tp2 cp4", {.tp = 2, .cp = 4}, 131072, {118.13}}});
}

TEST(MemoryModel, MeasuredPeaksOfLatentAttentionAndExperts) {
  model::ModelSpec model = model::preset("deepseek-v3");
  model.layers = 4;
  model.mtp_layers = 0;
  model.experts->layers = {false, true, true, true};
  expect_peaks(model, {{"v3 ep8", {.dp_shard = 8, .ep = 8}, 4096, {104.30}},
                       {"v3 ep4 pp2", {.dp_shard = 4, .pp = 2, .ep = 4}, 4096, {71.24, 114.00}}});
}

/// 1F1B: the first of p stages holds p micro-batches, the last one; never more than there are.
TEST(MemoryModel, MicroBatchesInFlight) {
  Problem problem = problem_of(model::preset("llama-3-8b"), "megatron");
  const Candidate candidate = candidate_on({.pp = 4});
  const MemoryModel memory(problem);
  const auto kept = [&](std::int64_t stage, std::int64_t batch) {
    problem.global_batch = batch;
    return static_cast<double>(activations(problem, candidate, stage));
  };
  const double one = kept(1, 1);
  const double step = kept(1, 2) - one;
  EXPECT_NEAR(kept(1, 3) - one, 2 * step, 1e6);
  EXPECT_NEAR(kept(1, 64), kept(1, 3), 1);
  EXPECT_NEAR(kept(0, 64) - kept(1, 64), step, 1e6);
}

/// Most layers that a rank has in flight, by a walk over its actions.
std::int64_t layers_in_flight(const schedule::Shape& shape, std::int64_t rank,
                              const std::vector<std::int64_t>& layers) {
  std::int64_t now = 0;
  std::int64_t most = 0;
  const schedule::Schedule schedule = schedule::make_schedule(shape);
  for (const schedule::Action& action : schedule.ranks[static_cast<std::size_t>(rank)]) {
    using schedule::ActionKind;
    const std::int64_t weight = layers[static_cast<std::size_t>(shape.stage_of(rank, action.chunk))];
    if (action.kind == ActionKind::forward) most = std::max(most, now += weight);
    if (action.kind == ActionKind::backward || action.kind == ActionKind::weight_grad) now -= weight;
  }
  return most;
}

TEST(MemoryModel, ChunksWeighTheLayersThatTheyHave) {
  Problem problem = problem_of(model::preset("llama-3-8b"), "ndmesh", 1024);
  problem.model.layers = 20;
  problem.global_batch = 12;
  for (const schedule::Kind kind : {schedule::Kind::interleaved, schedule::Kind::zb_v}) {
    Candidate candidate = candidate_on({.pp = 2});
    candidate.schedule = kind;
    candidate.chunks = 2;
    const schedule::Shape shape = schedule_shape(problem, candidate);
    const auto activations = [&](const std::vector<std::int64_t>& layers, std::int64_t rank) {
      Problem cut = problem;
      cut.layers = {job::StageLayers::Policy::given, layers};
      return MemoryModel(cut).budget_of(candidate, rank).peaks[MemoryCategory::activations];
    };
    Problem deeper = problem;
    deeper.model.layers = 21;
    const auto alone = [&](const Problem& one) {
      return MemoryModel(one).budget_of(candidate_on({}), 0).peaks[MemoryCategory::activations];
    };
    const std::int64_t layer = alone(deeper) - alone(problem);
    const std::vector<std::int64_t> even = {5, 5, 5, 5};
    for (const std::int64_t rank : {0, 1}) {
      const std::int64_t in_flight = layers_in_flight(shape, rank, even);
      for (const std::vector<std::int64_t>& layers :
           {std::vector<std::int64_t>{8, 2, 2, 8}, {2, 8, 8, 2}, {1, 2, 7, 10}, {10, 5, 4, 1}}) {
        const std::int64_t more = layers_in_flight(shape, rank, layers) - in_flight;
        EXPECT_EQ(activations(layers, rank) - activations(even, rank), more * layer)
            << schedule::name_of(kind) << " rank " << rank << " " << testing::PrintToString(layers);
      }
    }
  }
}

TEST(MemoryModel, RecomputeTradesActivations) {
  const Problem problem = problem_of(model::preset("llama-3-8b"), "megatron");
  Candidate candidate = candidate_on({});
  const std::int64_t none = activations(problem, candidate);
  candidate.recompute = {Policy::every, 2, 0};
  const std::int64_t half = activations(problem, candidate);
  candidate.recompute = {Policy::full, 1, 0};
  const std::int64_t full = activations(problem, candidate);
  EXPECT_LT(full, half);
  EXPECT_LT(half, none);
  // 32 block inputs, one block recomputed, the ends: far below a block of every layer.
  EXPECT_GT(full, 32 * 4096 * 4096 * 2);
  EXPECT_LT(full, none / 4);
  candidate.recompute = {Policy::budget, 1, none};
  EXPECT_EQ(activations(problem, candidate), none);
  candidate.recompute = {Policy::budget, 1, (none + full) / 2};
  EXPECT_LE(activations(problem, candidate), (none + full) / 2 + (none - full) / 16);
  candidate.recompute = {Policy::budget, 1, 1};
  EXPECT_EQ(activations(problem, candidate), full);
}

/// Selective means scores to Megatron, and flash attention keeps none: it frees nothing there.
TEST(MemoryModel, SelectiveIsWhatTheRuntimeMeansByIt) {
  Problem problem = problem_of(model::preset("llama-3-8b"), "megatron");
  Candidate selective = candidate_on({});
  selective.recompute.policy = Policy::selective;
  EXPECT_EQ(activations(problem, selective), activations(problem, candidate_on({})));
  problem.profile.memory.flash_attention = false;
  EXPECT_LT(activations(problem, selective), activations(problem, candidate_on({})) / 2);
  problem.profile = profile("torchtitan");
  EXPECT_LT(activations(problem, selective), activations(problem, candidate_on({})));
}

/// Without sequence parallelism tp leaves the norm regions whole: by token and layer 8 hidden-wide bytes more
/// at tp 2.
TEST(MemoryModel, SequenceParallelismCutsNormRegions) {
  const Problem problem = problem_of(model::preset("llama-3-8b"), "megatron");
  Candidate cut = candidate_on({.tp = 2});
  Candidate whole = cut;
  whole.sequence_parallel = false;
  const std::int64_t blocks = std::int64_t{32} * 4096 * 4 * (4096 * 2) / 2;
  EXPECT_NEAR(static_cast<double>(activations(problem, whole) - activations(problem, cut)),
              static_cast<double>(blocks), 2e8);
}

/// Draws legal candidates of a dense or a MoE model.
Candidate random_candidate(std::mt19937& random, bool moe) {
  const auto pick = [&](std::initializer_list<std::int64_t> values) {
    return *(values.begin() + static_cast<std::ptrdiff_t>(random() % values.size()));
  };
  Candidate candidate = candidate_on({.tp = pick({1, 2, 4, 8}),
                                      .cp = pick({1, 2}),
                                      .dp_shard = pick({1, 2, 8, 64}),
                                      .dp_replicate = pick({1, 2}),
                                      .pp = pick({1, 2, 4, 8})},
                                     pick({0, 1, 2, 3}));
  if (moe && candidate.mesh.stage_ranks() % 8 == 0) candidate.mesh.ep = pick({1, 2, 8});
  candidate.micro = pick({1, 2, 4});
  candidate.reshard = pick({0, 1}) == 1;
  candidate.sequence_parallel = pick({0, 1}) == 1;
  candidate.recompute = {static_cast<Policy>(pick({0, 1, 2, 3, 4})), pick({1, 2, 3}), pick({1, 40}) << 30};
  candidate.offload = static_cast<job::Offload>(pick({0, 0, 1, 2}));
  candidate.offload_activations = pick({0, 0, 1}) == 1;
  const bool pipeline = candidate.mesh.pp > 1;
  const std::int64_t kind = pipeline ? pick({0, 1, 2, 3, 4}) : 1;
  candidate.schedule = static_cast<schedule::Kind>(kind);
  if (pipeline && candidate.schedule == schedule::Kind::interleaved) candidate.chunks = 2;
  if (pipeline && candidate.schedule == schedule::Kind::zb_v) candidate.chunks = 2;
  return candidate;
}

TEST(MemoryModel, TheBoundNeverExceedsTheBudget) {
  std::mt19937 random(7);
  for (const char* const runtime : {"ndmesh", "megatron", "torchtitan", "deepspeed", "accelerate"}) {
    for (const char* const name : {"llama-3-70b", "mixtral-8x7b"}) {
      Problem problem = problem_of(model::preset(name), runtime);
      problem.global_batch = 8192;
      const MemoryModel memory(problem);
      for (int i = 0; i < 300; ++i) {
        const Candidate candidate = random_candidate(random, problem.model.experts.has_value());
        const StageBudget worst = memory.worst(candidate);
        EXPECT_LE(memory.least_bytes(candidate), worst.reserved) << runtime << " " << candidate.mesh.name();
        EXPECT_LE(worst.at_peak.total(), worst.peaks.total());
        EXPECT_LE(worst.at_peak.total(), worst.reserved);
        for (const StageBudget& budget : memory.budgets(candidate)) {
          EXPECT_LE(budget.reserved, worst.reserved) << candidate.mesh.name() << " stage " << budget.stage;
        }
      }
    }
  }
}

TEST(MemoryModel, MonotoneWhereItMustBe) {
  std::mt19937 random(11);
  for (const char* const runtime : {"ndmesh", "megatron", "torchtitan", "deepspeed"}) {
    Problem problem = problem_of(model::preset("llama-3-70b"), runtime);
    problem.global_batch = 8192;
    const MemoryModel memory(problem);
    for (int i = 0; i < 200; ++i) {
      Candidate candidate = random_candidate(random, false);
      candidate.offload = job::Offload::none;
      candidate.recompute.bytes = 1;
      const auto states = [&](const Candidate& one) {
        std::int64_t most = 0;
        for (const StageBudget& budget : memory.budgets(one)) most = std::max(most, states_of(budget.peaks));
        return most;
      };
      const std::int64_t now = states(candidate);
      Candidate more = candidate;
      more.mesh.tp *= 2;
      if (more.mesh.tp <= 8) {
        EXPECT_LE(states(more), now) << runtime << " tp of " << candidate.mesh.name();
      }
      more = candidate;
      more.zero = std::min<std::int64_t>(3, more.zero + 1);
      if (candidate.mesh.pp == 1) {
        EXPECT_LE(states(more), now) << runtime << " zero of " << candidate.mesh.name();
      }
      more = candidate;
      more.micro *= 2;
      const auto kept = [&](const Candidate& one) {
        return memory.budgets(one).front().peaks[MemoryCategory::activations];
      };
      if (candidate.mesh.pp == 1) {
        EXPECT_GE(kept(more), kept(candidate)) << candidate.mesh.name();
      }
    }
  }
}

}  // namespace
}  // namespace ndmesh::plan
