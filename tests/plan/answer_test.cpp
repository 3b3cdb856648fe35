#include "ndmesh/plan/search/answer.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "ndmesh/base/error.h"
#include "ndmesh/model/config.h"

namespace ndmesh::plan {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TrainingQuestion ask(const std::string& preset, const std::string& cluster, const std::string& yaml) {
  return training_question(job::parse_job("precision: {dtype: bfloat16}\n" + yaml, "test.yaml", {}),
                           model::preset(preset), cluster::parse_cluster(cluster, "test"));
}

const Fix* find_fix(const TrainingAnswer& answer, const std::string& change) {
  const auto found = std::find_if(answer.fixes.begin(), answer.fixes.end(),
                                  [&](const Fix& fix) { return fix.change == change; });
  return found == answer.fixes.end() ? nullptr : &*found;
}

Plan best_of(const TrainingQuestion& question) {
  return *best_plan(question.problem, {});
}

TEST(Answer, FixesAreNamedAndOrderedByPrice) {
  const TrainingAnswer found =
      answer(ask("llama-3-70b", "8xH200-SXM", "batch: {global: 64, seq_len: 8192}"), 1);
  for (const char* change : {"shard.offload=optimizer", "shard.offload=all", "precision.bf16_states=true",
                             "adapter.rank=16", "16 devices"}) {
    EXPECT_NE(find_fix(found, change), nullptr) << change;
  }
  EXPECT_EQ(found.fixes.back().devices, 16);  // the larger cluster comes last
  EXPECT_EQ(found.fixes.back().plan.candidate.mesh.world(), 16);
  for (std::size_t i = 1; i + 1 < found.fixes.size(); ++i) {
    EXPECT_LE(found.fixes[i - 1].plan.time.seconds, found.fixes[i].plan.time.seconds);
  }
  const TrainingAnswer held = answer(
      ask("llama-3-8b", "8xH100-SXM", "batch: {global: 64, seq_len: 8192}\nmesh: {dp_replicate_size: 8}"), 1);
  EXPECT_FALSE(held.fits());
  const Fix* open = find_fix(held, "mesh sizes left open");
  ASSERT_NE(open, nullptr);
  EXPECT_EQ(open->devices, 8);
}

TEST(Answer, EveryUsedAxisHasItsReasonInNumbers) {
  const TrainingAnswer found = answer(
      ask("llama-3-8b", "2x8xH100-SXM", "batch: {global: 8, seq_len: 8192}\nmesh: {tp_size: 2, pp_size: 2}"),
      3);
  for (const Plan& plan : found.result.plans) {
    std::size_t used = 0;
    for (const mesh::Axis axis : mesh::all_axes) used += plan.candidate.mesh.size(axis) > 1 ? 1U : 0U;
    ASSERT_EQ(plan.reasons.size(), used);
    for (const std::string& reason : plan.reasons) {
      EXPECT_THAT(reason, AllOf(HasSubstr("without it"), HasSubstr("GiB")));
    }
  }
  const auto explanation = explanation_of(found);
  ASSERT_EQ(explanation.size(), 7U);
  EXPECT_THAT(explanation[0], AllOf(HasSubstr("1. Domains"), HasSubstr("nvlink"), HasSubstr("16 devices")));
  for (const char* part : {"2. Tensor", "splits", "Stays whole:", "On the critical path: all-gather",
                           "of a step of", "Here: tp 2", "Fails when it leaves"}) {
    EXPECT_THAT(explanation[1], HasSubstr(part));
  }
  EXPECT_THAT(explanation[3], HasSubstr("4. Pipeline"));
  EXPECT_THAT(explanation[4], HasSubstr("the model is dense"));
  EXPECT_THAT(explanation[5], HasSubstr("candidates break no rule"));
  EXPECT_THAT(explanation[6], HasSubstr("Baseline"));
}

TEST(Answer, BaselinesThatAreNotLegalSayWhy) {
  const TrainingAnswer found =
      answer(ask("llama-3-8b", "2x8xH100-SXM", "batch: {global: 8, seq_len: 8192}"), 1);
  ASSERT_EQ(found.baselines.size(), 4U);
  EXPECT_TRUE(found.baselines[0].plan);
  EXPECT_EQ(found.baselines[0].plan->candidate.mesh.world(), 1);
  EXPECT_FALSE(found.baselines[1].plan);
  EXPECT_THAT(found.baselines[1].broken,
              testing::Contains(HasSubstr("batch.global: 8 is not a multiple of 16")));
}

TEST(Answer, ABatchMayGrow) {
  const TrainingQuestion fixed = ask("llama-3-8b", "2x8xH100-SXM", "batch: {global: 8, seq_len: 2048}");
  const TrainingQuestion range =
      ask("llama-3-8b", "2x8xH100-SXM", "batch: {global: 8, seq_len: 2048}\nplan: {max_batch: 64}");
  const TrainingAnswer small = answer(fixed, 1);
  const TrainingAnswer large = answer(range, 1);
  EXPECT_EQ(small.result.plans.front().global_batch, 8);
  EXPECT_EQ(large.result.plans.front().global_batch, 64);
  EXPECT_GT(tokens_per_second(range.problem, large.result.plans.front()),
            tokens_per_second(fixed.problem, small.result.plans.front()));
  EXPECT_GT(large.result.judged, small.result.judged);
  const auto limits = [](const TrainingAnswer& found) {
    return std::count_if(found.warnings.begin(), found.warnings.end(),
                         [](const Warning& warning) { return warning.name == "batch limits dp"; });
  };
  EXPECT_EQ(limits(large), 0);
}

// With a rate that is wanted the smallest step that reaches it wins, not the fastest rate.
TEST(Answer, AWantedRateIsReachedByTheShortestStep) {
  TrainingQuestion question =
      ask("llama-3-8b", "2x8xH100-SXM", "batch: {global: 8, seq_len: 2048}\nplan: {max_batch: 64}");
  const double least = tokens_per_second(question.problem, best_of(question));
  question.tokens_per_second = 0.9 * least;
  const TrainingAnswer easy = answer(question, 1);
  EXPECT_EQ(easy.result.plans.front().global_batch, 8);
  EXPECT_TRUE(easy.fixes.empty());
}

TEST(Answer, ARateThatIsNotReachedNeedsMoreDevices) {
  TrainingQuestion question = ask("llama-3-8b", "2x8xH100-SXM", "batch: {global: 96, seq_len: 2048}");
  question.tokens_per_second = 1.3 * tokens_per_second(question.problem, best_of(question));
  const TrainingAnswer found = answer(question, 1);
  EXPECT_TRUE(found.fits());
  EXPECT_THAT(found.warnings.front().text, HasSubstr("tokens/s are wanted, and the best plan gives"));
  ASSERT_EQ(found.fixes.size(), 1U);
  const Fix& fix = found.fixes.front();
  EXPECT_EQ(fix.change, "24 devices");  // half as many again, where a third would do
  EXPECT_EQ(fix.devices, 24);
  EXPECT_GE(tokens_per_second(question.problem, fix.plan), question.tokens_per_second);
}

// With a batch that may grow, so may that of what it is compared with, and of the larger clusters that are tried.
TEST(Answer, BaselinesAndMoreDevicesUseTheRangeOfTheBatch) {
  TrainingQuestion question =
      ask("llama-3-8b", "8xH100-SXM", "batch: {global: 8, seq_len: 2048}\nplan: {max_batch: 64}");
  const TrainingAnswer free = answer(question, 1);
  ASSERT_EQ(free.result.plans.front().global_batch, 64);
  for (const Baseline& row : free.baselines) EXPECT_EQ(row.plan.value().global_batch, 64) << row.name;
  EXPECT_EQ(free.without.front().plan.value().global_batch, 64);
  // Twice the rate: eight sequences feed no sixteen devices, sixty-four do.
  question.tokens_per_second = 1.8 * tokens_per_second(question.problem, free.result.plans.front());
  const TrainingAnswer found = answer(question, 1);
  ASSERT_EQ(found.fixes.size(), 1U);
  EXPECT_EQ(found.fixes.front().devices, 16);
  EXPECT_EQ(found.fixes.front().plan.global_batch, 64);
}

/// An axis that no plan of the table has is judged apart; one that is given, or cannot be, says so.
TEST(Answer, EveryUnusedAxisSaysWhy) {
  const auto explained = [](const std::string& preset, const std::string& cluster, const std::string& yaml) {
    return explanation_of(answer(ask(preset, cluster, yaml), 1));
  };
  const auto four =
      explained("llama-3-8b", "4xH100-SXM", "batch: {global: 64, seq_len: 2048}\nmesh: {cp_size: 1}");
  EXPECT_THAT(four[1], HasSubstr("tp is not used: the best plan with its smallest sizes is"));
  EXPECT_THAT(four[1], AllOf(HasSubstr("a step against"), HasSubstr("of it more")));
  EXPECT_THAT(four[4], HasSubstr("cp is not used: it is given as 1"));
  EXPECT_THAT(explained("llama-1m", "1xH100-SXM", "batch: {global: 8}")[3], HasSubstr("there is one device"));
  const auto odd = explained("llama-3-8b", "7xH100-SXM", "batch: {global: 14, seq_len: 2048}");
  EXPECT_THAT(odd[1], HasSubstr("tp is not used: no mesh with it is legal"));  // 7 divides no head count
}

const Baseline& baseline(const TrainingAnswer& answer, const std::string& name) {
  return *std::find_if(answer.baselines.begin(), answer.baselines.end(),
                       [&](const Baseline& row) { return row.name == name; });
}

// The moments of fully sharded parameters are 8 bytes each: 64.2 GB of the node.
TEST(Answer, OffloadNeedsRoomInHostMemory) {
  const std::string job = "batch: {global: 64, seq_len: 2048}\nshard: {offload: optimizer}";
  const TrainingAnswer roomy = answer(ask("llama-3-8b", "{node: 8xH100-SXM, host_memory: 70GB}", job), 1);
  EXPECT_TRUE(roomy.fits());
  const Plan& best = roomy.result.plans.front();
  EXPECT_NEAR(static_cast<double>(best.node_host_bytes), 8.0 * 8030261248, 1e6);

  const TrainingAnswer full = answer(ask("llama-3-8b", "{node: 8xH100-SXM, host_memory: 60GB}", job), 3);
  EXPECT_FALSE(full.fits());
  const Plan& nearest = full.result.plans.front();
  EXPECT_LE(nearest.worst.reserved, full.allowed_bytes);  // the device has room
  EXPECT_THAT(shortage(full, nearest), HasSubstr("to the 55.88 GiB of a node"));
  ASSERT_NE(find_fix(full, "shard.offload=none"), nullptr);
  EXPECT_TRUE(find_fix(full, "shard.offload=none")->plan.fits);
  EXPECT_EQ(find_fix(full, "shard.offload=all"), nullptr);              // takes more of the host
  EXPECT_TRUE(answer(ask("llama-3-8b", "8xH100-SXM", job), 1).fits());  // not known: warned of
}

// A token leaves 2 x (6 hidden + 2 KV width + 3 ffn) bytes in each block, and float32 statistics of two norms and of 32
// heads: 139,400 of them, for 8,192 tokens in 32 blocks on each of two devices.
TEST(Answer, OffloadedActivationsMakeAModelFit) {
  const auto asked = [](const std::string& host, const std::string& offload) {
    return answer(ask("llama-3-8b", "{node: 2xH100-SXM" + host + "}",
                      "batch: {global: 8, seq_len: 8192, micro: 1}\nmesh: {dp_shard_size: 2}\n"
                      "recompute: {policy: none" +
                          offload + "}"),
                  1);
  };
  const double bytes = 2.0 * 32 * 8192 * (2 * (6 * 4096 + 2 * 1024 + 3 * 14336) + 4 * (2 + 32));
  const TrainingAnswer kept = asked("", "");
  EXPECT_FALSE(kept.fits());
  const Fix* fix = find_fix(kept, "recompute.offload=true");
  ASSERT_NE(fix, nullptr);
  EXPECT_THAT(describe(fix->plan), HasSubstr("activations on the host"));
  EXPECT_EQ(static_cast<double>(fix->plan.node_host_bytes), bytes);

  const TrainingAnswer moved = asked(", host_memory: 74GB", ", offload: true");
  EXPECT_TRUE(moved.fits());
  EXPECT_EQ(moved.result.plans.front().time.seconds, fix->plan.time.seconds);
  EXPECT_EQ(find_fix(asked(", host_memory: 73GB", ""), "recompute.offload=true"), nullptr);

  const TrainingAnswer full = asked(", host_memory: 73GB", ", offload: true");
  EXPECT_FALSE(full.fits());
  EXPECT_THAT(shortage(full, full.result.plans.front()),
              HasSubstr("offloads 68.07 GiB to the 67.99 GiB of a node"));
}

// Without the host's room, and where a smaller model fits without it, leaving it is a way to fit.
TEST(Answer, ActivationsThatTheHostCannotHoldStayOnTheDevice) {
  const TrainingAnswer full =
      answer(ask("llama-1b", "{node: 2xH100-SXM, host_memory: 1GB}",
                 "batch: {global: 8, seq_len: 2048}\nrecompute: {policy: none, offload: true}"),
             1);
  EXPECT_FALSE(full.fits());
  const Fix* fix = find_fix(full, "recompute.offload=false");
  ASSERT_NE(fix, nullptr);
  EXPECT_FALSE(fix->plan.candidate.offload_activations);
}

// The memory of a core is the host's: moving something there makes no room.
TEST(Answer, CoresHaveNoOtherMemoryToOffloadTo) {
  const TrainingAnswer found =
      answer(ask("llama-1b",
                 "{device: {name: cpu, memory: 4GiB, bf16_flops: 1T, memory_bandwidth: 50GB/s}, "
                 "devices_per_node: 2, pcie: {bandwidth: 20GB/s}}",
                 "batch: {global: 8, seq_len: 2048}"),
             1);
  EXPECT_FALSE(found.fits());
  for (const Fix& fix : found.fixes)
    EXPECT_THAT(fix.change, testing::Not(HasSubstr("offload"))) << fix.change;
}

// Stages of 10, 20 and 30 bytes a rank, tp 2 inside: the node that holds most of the largest counts.
TEST(Answer, HostMemoryIsCountedOnTheFullestNode) {
  std::vector<StageBudget> stages(3);
  for (std::int64_t stage = 0; stage < 3; ++stage)
    stages[static_cast<std::size_t>(stage)].host_bytes = 10 * (stage + 1);
  Candidate candidate;
  candidate.mesh = {.tp = 2, .dp_replicate = 4, .pp = 3};
  const auto most = [&](std::int64_t devices_per_node) {
    cluster::Cluster cluster;
    cluster.devices_per_node = devices_per_node;
    std::int64_t bytes = 0;  // rank by rank
    const mesh::Mesh mesh(candidate.mesh, candidate.order);
    for (std::int64_t node = 0; node * devices_per_node < 24; ++node) {
      std::int64_t sum = 0;
      for (std::int64_t i = 0; i < devices_per_node; ++i) {
        sum += 10 * (1 + mesh.coordinate(node * devices_per_node + i, mesh::Axis::pp));
      }
      bytes = std::max(bytes, sum);
    }
    EXPECT_EQ(node_host_bytes(cluster, candidate, stages), bytes) << devices_per_node;
    return bytes;
  };
  EXPECT_EQ(most(8), 240);  // pp outermost: a stage has a node to itself
  EXPECT_EQ(most(24), 480);
  candidate.order = {mesh::Axis::tp, mesh::Axis::pp, mesh::Axis::cp, mesh::Axis::dp_shard,
                     mesh::Axis::dp_replicate};
  EXPECT_EQ(most(8), 180);  // 3, 3, 1, 1, 2, 2, 3, 3 in the second node
  EXPECT_EQ(most(4), 100);
  for (const std::int64_t devices : {1, 2, 3, 6, 12}) most(devices);
}

TEST(Answer, WhatIsHeldIsLeftOpenAmongTheFixes) {
  const std::string batch = "batch: {global: 64, seq_len: 8192";
  const TrainingAnswer recompute =
      answer(ask("llama-3-8b", "2xH100-SXM", batch + "}\nrecompute: {policy: none}"), 1);
  EXPECT_FALSE(recompute.fits());
  EXPECT_NE(find_fix(recompute, "recompute.policy left open"), nullptr);
  EXPECT_NE(find_fix(recompute, "precision.bf16_states=true"), nullptr);
  const TrainingAnswer micro = answer(
      ask("llama-3-8b", "8xH100-SXM", batch + ", micro: 8}\nshard: {zero: 1}\nmesh: {dp_shard_size: 8}"), 1);
  EXPECT_FALSE(micro.fits());
  EXPECT_NE(find_fix(micro, "batch.micro, shard.zero and pipeline.schedule left open"), nullptr);
}

/// Whole copies of 70B and nothing recomputed: no change alone is enough on eight devices.
TEST(Answer, WhereNoLeverIsEnoughAloneTheyArePulledTogether) {
  for (const auto& [runtime, offload] : {std::pair{"deepspeed", "all"}, std::pair{"megatron", "optimizer"}}) {
    const std::string job =
        "batch: {global: 64, seq_len: 8192}\nmesh: {dp_replicate_size: 8}\n"
        "recompute: {policy: none}\nplan: {runtime: " +
        std::string(runtime) + "}";
    const TrainingAnswer found = answer(ask("llama-3-70b", "8xH100-SXM", job), 1);
    const Fix* together = find_fix(
        found, "everything left open, precision.bf16_states=true, shard.offload=" + std::string(offload));
    ASSERT_NE(together, nullptr) << runtime;
    EXPECT_TRUE(together->plan.fits);
  }
}

TEST(Answer, EveryStageHasItsBudget) {
  const TrainingAnswer found =
      answer(ask("llama-3-8b", "8xH100-SXM",
                 "batch: {global: 64, seq_len: 2048}\nmesh: {pp_size: 4}\npipeline: {schedule: 1f1b}"),
             2);
  for (const Plan& plan : found.result.plans) {
    ASSERT_EQ(plan.stages.size(), 4U);
    std::int64_t most = 0;
    for (std::int64_t stage = 0; stage < 4; ++stage) {
      EXPECT_EQ(plan.stages[static_cast<std::size_t>(stage)].stage, stage);
      most = std::max(most, plan.stages[static_cast<std::size_t>(stage)].reserved);
    }
    EXPECT_EQ(most, plan.worst.reserved);
    EXPECT_EQ(plan.stages[static_cast<std::size_t>(plan.worst.stage)].reserved, most);
  }
}

// A batch of the range that no schedule could deal out is passed over; a batch given alone is refused.
TEST(Answer, BatchesOfTheRangeThatAreNotLegalArePassedOver) {
  const TrainingAnswer found = answer(
      ask("llama-1m", "1xH100-SXM", "batch: {global: 1048576, seq_len: 8}\nplan: {max_batch: 8388608}"), 1);
  EXPECT_LE(found.result.plans.front().global_batch, 8388608);
  const TrainingQuestion odd =
      ask("llama-1m", "3xH100-SXM", "batch: {global: 64, seq_len: 8}\nmesh: {dp_replicate_size: 3}");
  EXPECT_THROW(answer(odd, 1), RequestError);
}

TEST(Answer, ABaselineThatIsNotLegalHasItsMesh) {
  const TrainingAnswer found =
      answer(ask("llama-3-8b", "2x8xH100-SXM", "batch: {global: 8, seq_len: 8192}"), 1);
  EXPECT_EQ(baseline(found, "plain data parallel").mesh.dp_replicate, 16);
  EXPECT_EQ(baseline(found, "hybrid").mesh.name(), "dp_replicate=2,dp_shard=8");
}

}  // namespace
}  // namespace ndmesh::plan
