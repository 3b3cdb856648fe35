#include "ndmesh/plan/time/step_time.h"

#include <gtest/gtest.h>

#include <random>

#include "ndmesh/base/error.h"
#include "ndmesh/model/config.h"
#include "ndmesh/plan/stage_cut.h"
#include "ndmesh/plan/time/groups.h"
#include "plan/time_support.h"

namespace ndmesh::plan {
namespace {

using test::ideal;
using test::small_problem;
using test::two_levels;

Problem on_nodes(std::int64_t nodes) {
  return small_problem(two_levels(nodes, 8, 300e9, 25e9));
}

StepTime step(const Problem& problem, const Candidate& candidate) {
  return TimeModel(problem, constants_for(problem.cluster, "megatron")).step(candidate);
}

Candidate with(const mesh::MeshSizes& sizes) {
  Candidate candidate;
  candidate.mesh = sizes;
  candidate.zero = sizes.dp_shard > 1 ? 1 : 0;
  return candidate;
}

void expect_parts_sum(const StepTime& time) {
  const double sum =
      time.compute + time.exposed + time.bubble + time.optimizer + time.input + time.checkpoint + time.other;
  EXPECT_DOUBLE_EQ(sum, time.seconds);
  double exposed = 0;
  for (const Exposed& entry : time.by_collective) {
    EXPECT_GT(entry.seconds, 0) << entry.what;
    exposed += entry.seconds;
  }
  EXPECT_NEAR(exposed, time.exposed, 1e-12 * time.seconds);
  for (const double part :
       {time.compute, time.exposed, time.bubble, time.optimizer, time.input, time.checkpoint, time.other}) {
    EXPECT_GE(part, 0);
  }
}

// One rank, no overheads: products at the share of peak that their shapes reach, nothing else of weight. 8 B S tokens ...
TEST(StepTime, OneRankIsNeverFasterThanItsFlops) {
  Problem problem = on_nodes(1);
  problem.global_batch = 8;
  const StepTime time = step(problem, with({}));
  EXPECT_GT(time.mfu, 0.2);
  EXPECT_LT(time.mfu, 0.84);
  EXPECT_EQ(time.bubble, 0);
  EXPECT_TRUE(time.by_collective.empty());
  expect_parts_sum(time);
}

// TIME-03: tokens count once, whatever tp and cp.
TEST(StepTime, TokensCountOnce) {
  const Problem problem = on_nodes(2);
  Candidate candidate = with({.tp = 4, .cp = 2, .dp_shard = 2});
  const StepTime time = step(problem, candidate);
  EXPECT_DOUBLE_EQ(time.tokens_per_second_per_device * 16 * time.seconds, 64.0 * 2048);
}

// TIME-01, TIME-02: 420 TFLOP/s of an H200's 989.4 are 42.4 %; a device without a known peak has no MFU.
TEST(StepTime, UtilizationNeedsAKnownPeak) {
  Problem problem = on_nodes(1);
  problem.cluster.device.bf16_flops = 989.4e12;
  const double flops = model::flops_per_token(problem.model, problem.seq_len).total();
  EXPECT_NEAR(model_flops_utilization(problem, 420e12 / flops), 0.4245, 1e-4);
  problem.cluster.device = cluster::parse_cluster("8xH100-PCIe", "test").device;
  EXPECT_NEAR(model_flops_utilization(problem, 400e12 / flops), 0.529, 5e-4);
  problem.cluster.device.bf16_flops = 0;
  EXPECT_EQ(model_flops_utilization(problem, 420e12 / flops), 0);
  EXPECT_THROW(TimeModel(problem, constants_for(problem.cluster, "megatron")), RequestError);
}

// Recompute runs the forward again: it costs time and never raises MFU.
TEST(StepTime, RecomputeCostsTheForward) {
  const Problem problem = on_nodes(1);
  Candidate candidate = with({});
  const StepTime kept = step(problem, candidate);
  candidate.recompute.policy = job::Recompute::Policy::every;
  candidate.recompute.layers = 2;
  const StepTime half = step(problem, candidate);
  candidate.recompute.policy = job::Recompute::Policy::full;
  const StepTime full = step(problem, candidate);
  EXPECT_GT(full.compute / kept.compute, 1.2);
  EXPECT_LT(full.compute / kept.compute, 1.4);
  EXPECT_NEAR(half.compute, (kept.compute + full.compute) / 2, 1e-3 * full.compute);
  EXPECT_LT(full.mfu, kept.mfu);
}

// A budget of bytes lies between keeping everything and recomputing everything.
TEST(StepTime, ABudgetOfActivationsCostsWhatItRecomputes) {
  Problem problem = on_nodes(1);
  problem.profile = profile("megatron");
  Candidate candidate = with({});
  const double kept = step(problem, candidate).compute;
  candidate.recompute = {.policy = job::Recompute::Policy::budget, .layers = 1, .bytes = 1'000'000'000'000};
  EXPECT_DOUBLE_EQ(step(problem, candidate).compute, kept);
  double before = kept;
  for (const std::int64_t bytes : {1'000'000'000, 500'000'000, 0}) {
    candidate.recompute.bytes = bytes;
    const double seconds = step(problem, candidate).compute;
    EXPECT_GT(seconds, before) << bytes;
    before = seconds;
  }
  candidate.recompute = {.policy = job::Recompute::Policy::full, .layers = 1, .bytes = 0};
  const double full = step(problem, candidate).compute;
  EXPECT_DOUBLE_EQ(before, full);
}

// Equal stages, free transfers, no ends: (p - 1) / (m + p - 1).
TEST(StepTime, BubbleOfGpipe) {
  Problem problem = on_nodes(1);
  problem.model.vocab = 1;  // no head, no embedding
  problem.cluster.levels[0].bandwidth = 1e30;
  Candidate candidate = with({.pp = 8});
  candidate.schedule = schedule::Kind::gpipe;
  for (const std::int64_t micro : {1, 4, 16}) {
    candidate.micro = micro;
    const double m = 64.0 / static_cast<double>(micro);
    const StepTime time = TimeModel(problem, ideal(problem.cluster)).step(candidate);
    EXPECT_NEAR(time.bubble_share, 7 / (m + 7), 0.02) << m;
  }
}

// 6 layers on 8 stages of which the first holds the embedding and the last the head alone, and 22 on 8: two on the ends,
// three between.
TEST(Stages, EndsMayCountAsLayers) {
  Problem problem = on_nodes(1);
  const auto sizes = [&](std::int64_t layers) {
    problem.model.layers = layers;
    std::vector<std::int64_t> list;
    std::int64_t next = 0;
    CutTable cuts(problem);
    for (const layout::Range& range : cuts.of(8)) {
      EXPECT_EQ(range.start, next);
      next += range.size;
      list.push_back(range.size);
    }
    EXPECT_EQ(next, layers);
    return list;
  };
  EXPECT_EQ(sizes(22), (std::vector<std::int64_t>{3, 3, 3, 3, 3, 3, 2, 2}));
  problem.ends_are_layers = true;
  EXPECT_EQ(sizes(22), (std::vector<std::int64_t>{2, 3, 3, 3, 3, 3, 3, 2}));
  EXPECT_EQ(sizes(6), (std::vector<std::int64_t>{0, 1, 1, 1, 1, 1, 1, 0}));
}

TEST(StepTime, TensorParallelismAcrossNodesIsSlower) {
  Problem problem = on_nodes(2);
  const StepTime inside = step(problem, with({.tp = 8, .dp_shard = 2}));
  const StepTime across = step(problem, with({.tp = 16}));
  EXPECT_GT(across.seconds, inside.seconds);
  Candidate outward = with({.tp = 8, .dp_shard = 2});
  outward.order = {mesh::Axis::dp_shard, mesh::Axis::tp, mesh::Axis::cp, mesh::Axis::dp_replicate,
                   mesh::Axis::pp};
  EXPECT_GT(step(problem, outward).seconds, inside.seconds);
}

TEST(StepTime, FasterLinksAreNeverSlower) {
  for (const mesh::MeshSizes& sizes :
       {mesh::MeshSizes{.tp = 8, .dp_shard = 2}, mesh::MeshSizes{.tp = 2, .dp_shard = 4, .pp = 2},
        mesh::MeshSizes{.cp = 2, .dp_shard = 8}, mesh::MeshSizes{.dp_shard = 8, .dp_replicate = 2}}) {
    double before = 1e30;
    for (const double factor : {0.5, 1.0, 2.0, 8.0}) {
      const Problem problem = small_problem(two_levels(2, 8, factor * 300e9, factor * 25e9));
      const double seconds = step(problem, with(sizes)).seconds;
      EXPECT_LE(seconds, before * (1 + 1e-12)) << sizes.name();
      before = seconds;
    }
  }
}

TEST(StepTime, ExposedCollectivesAreNamed) {
  Problem problem = on_nodes(2);
  problem.profile.time.overlap_gradients = false;
  problem.profile.time.overlap_parameters = false;
  const StepTime time = step(problem, with({.tp = 4, .dp_shard = 2, .pp = 2}));
  const auto names = [&] {
    std::vector<std::string> list;
    for (const Exposed& entry : time.by_collective) {
      list.push_back(entry.what);
    }
    return list;
  }();
  for (const char* const name :
       {"tp/all_gather", "tp/reduce_scatter", "dp_shard/all_gather", "dp_shard/reduce_scatter", "pp/send"}) {
    EXPECT_NE(std::find(names.begin(), names.end(), name), names.end()) << name;
  }
  expect_parts_sum(time);
}

TEST(StepTime, OverlapHidesButNotAll) {
  Problem problem = on_nodes(8);
  const Candidate candidate = with({.dp_shard = 64});
  const StepTime hidden = step(problem, candidate);
  problem.profile.time.overlap_gradients = false;
  const StepTime open = step(problem, candidate);
  EXPECT_LT(hidden.exposed, open.exposed);
  EXPECT_GT(hidden.exposed, 0);             // the last unit
  EXPECT_GT(hidden.compute, open.compute);  // hidden communication slows compute down
}

TEST(StepTime, InputAndCheckpointsTakeTheirTime) {
  Problem problem = on_nodes(1);
  const Candidate candidate = with({});
  const StepTime plain = step(problem, candidate);
  problem.cluster.input_rate = 64 * 2048 / (plain.seconds + 3);
  EXPECT_NEAR(step(problem, candidate).input, 3, 1e-9);
  problem.checkpoint_every = 10;
  problem.cluster.storage_bandwidth = 1e9;
  const StepTime saved = step(problem, candidate);
  EXPECT_DOUBLE_EQ(saved.checkpoint, 14.0 * static_cast<double>(problem.model.parameter_count()) / 1e9 / 10);
  expect_parts_sum(saved);
}

TEST(StepTime, OffloadedOptimizerPaysTransfers) {
  const Problem problem = on_nodes(1);
  Candidate candidate = with({.dp_shard = 8});
  const StepTime device = step(problem, candidate);
  candidate.offload = job::Offload::optimizer;
  EXPECT_GT(step(problem, candidate).optimizer, device.optimizer);
}

/// Where nothing hides it, what each micro-batch sends over the host link is seen: values twice, gradients once.
TEST(StepTime, OffloadedShardsPayTheHostLinkEachMicroBatch) {
  Problem problem = on_nodes(1);
  problem.profile.time.prefetch = false;
  problem.profile.time.overlap_gradients = false;
  problem.profile.time.reduce_each_micro_batch = true;
  Candidate candidate = with({.dp_shard = 8});
  candidate.zero = 3;
  const StepTime device = step(problem, candidate);
  candidate.offload = job::Offload::all;
  const StepTime host = step(problem, candidate);
  const double owned = static_cast<double>(problem.model.parameter_count()) / 8;
  const double bytes = owned * (2 + 2 + static_cast<double>(problem.profile.time.gradient_bytes));
  const auto passes = static_cast<double>(micro_batches(problem, candidate));
  const double expected = passes * bytes / problem.cluster.device.host_bandwidth;
  EXPECT_NEAR(host.exposed - device.exposed, expected, 1e-4 * expected);  // norms are left out
}

/// Random candidates for a model of 24 layers on 64 devices.
class RandomCandidates {
 public:
  explicit RandomCandidates(unsigned seed) : generator_(seed) {}

  Candidate next() {
    Candidate candidate;
    std::int64_t left = 64;
    for (const mesh::Axis axis : {mesh::Axis::tp, mesh::Axis::pp, mesh::Axis::cp, mesh::Axis::dp_replicate}) {
      const std::int64_t size = std::min<std::int64_t>(left, std::int64_t{1} << pick(4));
      candidate.mesh.size(axis) = size;
      left /= size;
    }
    candidate.mesh.dp_shard = left;
    candidate.zero = pick(4);
    candidate.reshard = pick(2) == 0;
    candidate.sequence_parallel = pick(2) == 0;
    candidate.micro = std::int64_t{1} << pick(3);
    using Policy = job::Recompute::Policy;
    candidate.recompute = {.policy = std::array{Policy::none, Policy::selective, Policy::full, Policy::every,
                                                Policy::budget}[static_cast<std::size_t>(pick(5))],
                           .layers = 1 + pick(4),
                           .bytes = pick(4) << 30};
    candidate.offload_activations = pick(3) == 0;
    candidate.schedule =
        std::array{schedule::Kind::gpipe, schedule::Kind::one_f_one_b, schedule::Kind::zb_h1,
                   schedule::Kind::interleaved, schedule::Kind::zb_v}[static_cast<std::size_t>(pick(5))];
    const bool two =
        candidate.schedule == schedule::Kind::interleaved || candidate.schedule == schedule::Kind::zb_v;
    candidate.chunks = two && candidate.mesh.pp > 1 ? 2 : 1;
    if (candidate.mesh.pp == 1) {
      candidate.schedule = schedule::Kind::one_f_one_b;
    }
    return candidate;
  }

 private:
  std::int64_t pick(std::int64_t count) {
    return static_cast<std::int64_t>(generator_() % static_cast<unsigned>(count));
  }
  std::mt19937 generator_;
};

TEST(StepTime, TheLowerBoundNeverExceedsTheSimulation) {
  Problem problem = on_nodes(8);
  problem.model.layers = 26;  // stages of unequal size
  problem.global_batch = 512;
  const TimeModel model(problem, constants_for(problem.cluster, "megatron"));
  RandomCandidates candidates(3);
  double sum = 0;
  int judged = 0;
  for (int i = 0; i < 600; ++i) {
    const Candidate candidate = candidates.next();
    if (!schedule::problems_of(schedule_shape(problem, candidate)).empty()) {
      continue;
    }
    const StepTime time = model.step(candidate);
    const double least = model.least_seconds(candidate);
    ASSERT_LE(least, time.seconds) << candidate.mesh.name();
    expect_parts_sum(time);
    sum += least / time.seconds;
    ++judged;
  }
  EXPECT_GT(judged, 400);
  EXPECT_GT(sum / judged, 0.6);  // a bound that says something
}

TEST(StepTime, TheBoundHoldsHoweverStagesAreCut) {
  Problem problem = on_nodes(8);
  problem.model.layers = 26;
  problem.model.vocab = 256'000;
  problem.global_batch = 512;
  for (const auto policy : {job::StageLayers::Policy::cost, job::StageLayers::Policy::memory}) {
    problem.layers.policy = policy;
    const TimeModel model(problem, constants_for(problem.cluster, "megatron"));
    RandomCandidates candidates(5);
    for (int i = 0; i < 200; ++i) {
      Candidate candidate = candidates.next();
      const schedule::Shape shape = schedule_shape(problem, candidate);
      if (shape.stages() > problem.model.layers || !schedule::problems_of(shape).empty()) continue;
      const double least = model.least_seconds(candidate);
      EXPECT_LE(least, model.step(candidate).seconds) << candidate.mesh.name();
      candidate.order = mesh::default_order;
      EXPECT_LE(model.least_compute_seconds(candidate), least) << candidate.mesh.name();
    }
  }
}

TEST(StepTime, MixtureOfExperts) {
  Problem problem = on_nodes(8);
  model::Experts experts;
  experts.count = 64;
  experts.per_token = 4;
  experts.ffn = 1024;
  experts.layers = std::vector<bool>(8, true);
  problem.model.experts = experts;
  Candidate candidate = with({.dp_shard = 64, .ep = 8});
  const StepTime inside = step(problem, candidate);
  candidate.mesh.ep = 64;
  const StepTime across = step(problem, candidate);
  const auto exchange = [](const StepTime& time) {
    for (const Exposed& entry : time.by_collective) {
      if (entry.what == "ep/all_to_all") {
        return entry.seconds;
      }
    }
    return 0.0;
  };
  EXPECT_GT(exchange(inside), 0);
  EXPECT_GT(exchange(across), 2 * exchange(inside));  // over the nodes' NICs
  problem.profile.time.balanced_experts = false;
  problem.expert_skew = 2;
  EXPECT_GT(step(problem, candidate).seconds, across.seconds);
}

// Hidden exchanges slow the compute that hides them by a quarter of their own time.
TEST(StepTime, HiddenExchangesSlowCompute) {
  Problem problem = on_nodes(1);
  problem.model.experts = model::Experts();
  problem.model.experts->count = 8;
  problem.model.experts->per_token = 2;
  problem.model.experts->ffn = 5632;
  problem.model.experts->layers = std::vector<bool>(8, true);
  Constants constants = ideal(problem.cluster);
  constants.at("overlap_slowdown") = 0.25;
  constants.at("expert_host_seconds") = 0;
  Candidate candidate = with({.dp_shard = 8, .ep = 8});
  candidate.micro = 4;
  const StepTime shown = TimeModel(problem, constants).step(candidate);
  problem.profile.time.overlap_experts = true;
  const StepTime hidden = TimeModel(problem, constants).step(candidate);
  double exchange = 0;
  for (const Exposed& entry : shown.by_collective) {
    exchange += entry.what == "ep/all_to_all" ? entry.seconds : 0;
  }
  ASSERT_GT(exchange, 0);
  EXPECT_NEAR(hidden.exposed, shown.exposed - exchange, 1e-9 * shown.seconds);
  EXPECT_NEAR(hidden.compute, shown.compute + 0.25 * exchange, 1e-9 * shown.seconds);
}

// One stage with both ends of a tied model holds one table, two stages one each; float32 gradients are read
// for the norm, then read and written to be scaled: 12 bytes of an element.
TEST(StepTime, OptimizerOfATiedTableAndOfClipping) {
  Problem problem = on_nodes(1);
  const Constants constants = ideal(problem.cluster);
  const double bandwidth = 1e12 * constants["memory_efficiency"];
  const auto elements = [&](const Candidate& candidate) {
    return TimeModel(problem, constants).step(candidate).optimizer * bandwidth / constants["optimizer_bytes"];
  };
  const double table = 32000.0 * 2048;
  const double untied = elements(with({}));
  const double first = elements(with({.pp = 2}));
  problem.model.tied = true;
  EXPECT_NEAR(elements(with({})), untied - table, 1);
  EXPECT_NEAR(elements(with({.pp = 2})), first, 1);
  problem.profile.time.clips_gradients = false;
  EXPECT_NEAR(elements(with({})) * constants["optimizer_bytes"],
              (untied - table) * (constants["optimizer_bytes"] - 12), 100);
}

// Twice ten launches for each layer of a micro-batch, where the device and not the host sets the pace.
TEST(StepTime, PassesThatStartIdleShowTheirFirstLaunches) {
  Problem problem = on_nodes(1);
  Constants constants = ideal(problem.cluster);
  constants.at("host_seconds") = 1e-6;
  const double busy = TimeModel(problem, constants).step(with({})).compute;
  problem.profile.time.starts_idle = true;
  EXPECT_NEAR(TimeModel(problem, constants).step(with({})).compute, busy + 64 * 8 * 2 * 10e-6, 1e-6);
}

// Megatron's fused softmax takes four heads at a time: 4 of one sequence do, 2 of one do not, 2 of two do.
TEST(StepTime, SoftmaxFusedForWholeGroupsOfHeads) {
  Problem problem = on_nodes(1);
  problem.profile.time.attention = AttentionKernel::unfused;
  const auto changed_by_groups = [&](std::int64_t tp, std::int64_t micro) {
    Candidate candidate = with({.tp = tp});
    candidate.micro = micro;
    problem.profile.time.softmax_heads = 1;
    const double any = step(problem, candidate).compute;
    problem.profile.time.softmax_heads = 4;
    return step(problem, candidate).compute - any;
  };
  EXPECT_EQ(changed_by_groups(4, 1), 0);
  EXPECT_GT(changed_by_groups(8, 1), 0);
  EXPECT_EQ(changed_by_groups(8, 2), 0);
}

// ep counts a stage's ranks tp fastest, then cp, dp_shard, dp_replicate, as mesh::Mesh does.
TEST(Groups, ExpertGroupsAreThoseOfTheMesh) {
  for (const mesh::MeshSizes& sizes :
       {mesh::MeshSizes{.tp = 2, .cp = 2, .dp_shard = 4, .pp = 2, .ep = 4},
        mesh::MeshSizes{.tp = 4, .dp_shard = 2, .dp_replicate = 4, .ep = 4, .etp = 2},
        mesh::MeshSizes{.tp = 2, .dp_shard = 6, .ep = 3, .etp = 2},
        mesh::MeshSizes{.dp_shard = 8, .ep = 8}}) {
    for (const mesh::AxisOrder& order :
         {mesh::default_order, mesh::AxisOrder{mesh::Axis::dp_shard, mesh::Axis::tp, mesh::Axis::cp,
                                               mesh::Axis::pp, mesh::Axis::dp_replicate}}) {
      Candidate candidate = with(sizes);
      candidate.order = order;
      const mesh::Mesh mesh(sizes, order);
      for (const mesh::ExpertAxis axis : mesh::all_expert_axes) {
        std::vector<std::int64_t> ranks = {0};
        for (const cluster::Extent& extent : extents_of(candidate, axis)) {
          std::vector<std::int64_t> wider;
          for (std::int64_t i = 0; i < extent.size; ++i) {
            for (const std::int64_t rank : ranks) {
              wider.push_back(rank + i * extent.stride);
            }
          }
          ranks = wider;
        }
        std::vector<std::int64_t> group = mesh.groups(axis).front();
        std::sort(group.begin(), group.end());
        std::sort(ranks.begin(), ranks.end());
        EXPECT_EQ(ranks, group) << sizes.name() << " " << mesh::name_of(axis);
      }
    }
  }
}

}  // namespace
}  // namespace ndmesh::plan
