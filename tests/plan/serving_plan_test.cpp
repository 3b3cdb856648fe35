#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ndmesh/base/error.h"
#include "ndmesh/plan/serving/serving.h"
#include "plan/serving_models.h"

namespace ndmesh::plan {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::int64_t all = 1'000'000;

model::ModelSpec llama(const char* size) {
  return model::preset(std::string("llama-3") + size);
}

std::vector<std::string> refusals(const ServingQuestion& question) {
  try {
    answer_serving(question, 1);
  } catch (const RequestError& error) {
    return error.problems();
  }
  return {};
}

std::vector<std::string> names(const ServingAnswer& answer) {
  std::vector<std::string> list;
  for (const Warning& warning : answer.warnings) list.push_back(warning.name);
  return list;
}

const ServingFix* fix(const ServingAnswer& answer, std::string_view change) {
  for (const ServingFix& fix : answer.fixes) {
    if (fix.change == change) return &fix;
  }
  return nullptr;
}

// Replicas or shards

TEST(ServingPlan, ASmallModelIsReplicated) {
  const ServingPlan plan =
      answer_serving(question_of(llama("-8b"), devices_of(8, h100_bytes)), 1).plans.front();
  EXPECT_TRUE(plan.fits);
  EXPECT_EQ(plan.replica, Replica{});
  EXPECT_EQ(plan.replicas, 8);
  EXPECT_EQ(plan.max_context, 8192);
  EXPECT_EQ(plan.mesh().name(), "dp_replicate=8");
}

/// 141.1 GB of weights: two cards of 80 GB hold them, one does not.
TEST(ServingPlan, AModelBeyondOneCardIsShardedOverAsFewAsHoldIt) {
  const ServingAnswer answer = answer_serving(question_of(llama("-70b"), devices_of(8, h100_bytes)), 3);
  const ServingPlan& plan = answer.plans.front();
  EXPECT_EQ(plan.replica, Replica{.tp = 2});
  EXPECT_EQ(plan.replicas, 4);
  EXPECT_THAT(plan.reasons,
              Contains(AllOf(HasSubstr("replicas 4"), HasSubstr("the nearest, dp_replicate=8, lacks"))));
  EXPECT_THAT(plan.reasons, Contains(HasSubstr("tp 2")));
  EXPECT_EQ(plan.levels[0], "nvlink");
  EXPECT_EQ(names(answer), std::vector<std::string>{"scarce cache"});
}

/// By hand: what one card has free over what a sequence takes.
TEST(ServingPlan, ConcurrencyIsRoomOverSequences) {
  const ServingQuestion question = question_of(llama("-8b"), devices_of(1, h100_bytes), 4096);
  const ServingPlan plan = answer_serving(question, 1).plans.front();
  const std::int64_t weights = 2 * 8030261248;
  const std::int64_t headroom = static_cast<std::int64_t>(0.05 * h100_bytes);
  // residual, normed input, output; gate, up and their product: 2048 tokens in bfloat16
  const std::int64_t prefill = 2 * 2048 * (3 * 4096 + 3 * 14336);
  const std::int64_t room = h100_bytes - weights - headroom - prefill - (std::int64_t{450} << 20);
  const std::int64_t sequence = 131072 * std::int64_t{4096} + 128256 * 6;
  EXPECT_EQ(plan.worst.room, room);
  EXPECT_EQ(plan.concurrency, room / sequence);
  EXPECT_EQ(plan.memory[MemoryCategory::kv_cache], plan.concurrency * 131072 * 4096);
  EXPECT_LE(plan.memory.total(), h100_bytes);
}

TEST(ServingPlan, ReserveGivesTheLongestPagedTheMeanPrefixTheRest) {
  ServingQuestion question = question_of(llama("-8b"), devices_of(1, h100_bytes), 8192);
  const auto concurrency = [&] { return answer_serving(question, 1).plans.front().concurrency; };
  question.keys.kv_policy = job::KvPolicy::reserve;
  const std::int64_t reserved = concurrency();
  question.keys.kv_policy = job::KvPolicy::paged;
  EXPECT_EQ(concurrency(), reserved);  // whole blocks of full sequences
  question.keys.mean_context = 1024;
  const std::int64_t paged = concurrency();
  EXPECT_GT(paged, 7 * reserved);
  question.keys.kv_policy = job::KvPolicy::prefix;
  question.keys.prefix_share = 0.5;
  EXPECT_NEAR(static_cast<double>(concurrency()), 2 * static_cast<double>(paged),
              0.02 * static_cast<double>(paged));
}

/// DeepSeek-V3 in fp8 on two nodes: tp would copy the latent cache, so ranks attend to sequences of their
/// own.
TEST(ServingPlan, LatentAttentionIsNotCutByTp) {
  ServingQuestion question = question_of(deepseek_v3(), devices_of(8, h100_bytes, 4), 32768);
  question.keys.weights = job::WeightFormat::fp8;
  const ServingAnswer answer = answer_serving(question, all);
  const ServingPlan& plan = answer.plans.front();
  EXPECT_TRUE(plan.fits);
  EXPECT_GT(plan.replica.attention_ranks, 1);
  EXPECT_EQ(plan.replica.ep * plan.replica.etp, plan.replica.tp * plan.replica.attention_ranks);
  EXPECT_EQ(plan.mesh().dp_replicate, plan.replica.attention_ranks * plan.replicas);
}

TEST(ServingPlan, TpStaysInsideANodeWherePossible) {
  ServingQuestion question = question_of(llama(".1-405b"), devices_of(8, h100_bytes, 2), 8192);
  const ServingAnswer answer = answer_serving(question, all);
  EXPECT_TRUE(answer.plans.front().fits);
  EXPECT_EQ(answer.plans.front().replica, (Replica{.tp = 8, .pp = 2}));
  EXPECT_THAT(answer.plans.front().levels, testing::ElementsAre("nvlink", "", "", "", "network"));
  question.held = {.tp = 16};
  EXPECT_THAT(names(answer_serving(question, 1)), Contains("tp across domains"));
}

/// The first few are the first of all: pruning loses none.
TEST(ServingPlan, PruningIsExact) {
  for (const model::ModelSpec& model : {llama("-70b"), mixtral()}) {
    const ServingQuestion question = question_of(model, devices_of(8, h100_bytes, 2));
    const ServingAnswer whole = answer_serving(question, all);
    const ServingAnswer first = answer_serving(question, 5);
    EXPECT_EQ(first.legal, whole.legal);
    ASSERT_EQ(first.plans.size(), 5U);
    for (std::size_t i = 0; i < 5; ++i) {
      EXPECT_EQ(first.plans[i].replica, whole.plans[i].replica);
    }
  }
}

TEST(ServingPlan, PlansThatFitAreWithinTheDevice) {
  const ServingQuestion question = question_of(llama("-70b"), devices_of(8, h100_bytes, 2));
  for (const ServingPlan& plan : answer_serving(question, all).plans) {
    EXPECT_EQ(plan.fits, plan.memory.total() <= h100_bytes) << plan.mesh().name();
  }
}

// Monotone

TEST(ServingPlan, MoreMemoryNeverHoldsLess) {
  std::int64_t last = 0;
  std::int64_t last_context = 0;
  for (std::int64_t memory = 16 * gibi; memory <= 192 * gibi; memory += gibi) {
    const ServingPlan plan =
        answer_serving(question_of(llama("-8b"), devices_of(2, memory), 4096), 1).plans.front();
    EXPECT_GE(plan.concurrency, plan.fits ? last : 0);
    if (plan.replica == Replica{}) {
      EXPECT_GE(plan.max_context, last_context);
      last_context = plan.max_context;
      last = plan.fits ? plan.concurrency : 0;
    }
  }
  EXPECT_GT(last, 0);
}

TEST(ServingPlan, LongerSequencesAreNeverMore) {
  std::int64_t last = all;
  for (std::int64_t context = 1; context <= 131072; context = context * 3 / 2 + 1) {
    ServingQuestion question = question_of(llama(".1-405b"), devices_of(8, h100_bytes, 2), context);
    question.held = {.tp = 8, .pp = 2};
    const std::int64_t concurrency = answer_serving(question, 1).plans.front().concurrency;
    EXPECT_LE(concurrency, last);
    last = concurrency;
  }
}

TEST(ServingPlan, FewerBitsHoldMore) {
  ServingQuestion question = question_of(llama("-70b"), devices_of(8, h100_bytes));
  question.held = {.tp = 4};
  const auto concurrency = [&] { return answer_serving(question, 1).plans.front().concurrency; };
  const std::int64_t bfloat16 = concurrency();
  question.keys.weights = job::WeightFormat::fp8;
  const std::int64_t fp8 = concurrency();
  question.keys.weights = job::WeightFormat::int4;
  const std::int64_t int4 = concurrency();
  question.keys.kv_dtype = job::KvFormat::fp8;
  EXPECT_LT(bfloat16, fp8);
  EXPECT_LT(fp8, int4);
  EXPECT_GE(concurrency(), 2 * int4 - 2);
}

// Warnings

TEST(ServingWarnings, EachHasItsCondition) {
  ServingQuestion question = question_of(llama("-8b"), devices_of(8, h100_bytes), 8192);
  EXPECT_THAT(names(answer_serving(question, 1)), IsEmpty());
  question.keys.mean_context = 100;
  EXPECT_THAT(names(answer_serving(question, 1)), Contains("mean length"));
  question.keys = {.kv_policy = job::KvPolicy::reserve};
  EXPECT_THAT(names(answer_serving(question, 1)), Contains("reserved cache"));
  question.held = {.tp = 1, .pp = 3};
  EXPECT_THAT(names(answer_serving(question, 1)), Contains("idle devices"));
  question.cluster = devices_of(16, h100_bytes);
  question.held = {.tp = 16};
  EXPECT_THAT(names(answer_serving(question, 1)), Contains("copied cache"));
  question.model = deepseek_v3();
  question.held = {.tp = 2};
  question.keys.weights = job::WeightFormat::int4;
  EXPECT_THAT(names(answer_serving(question, 1)), Contains("copied cache"));
  question = question_of(model::estimate("8B"), devices_of(8, h100_bytes), 100);
  EXPECT_THAT(names(answer_serving(question, 1)), Contains("estimated model"));
  question.model.mtp_layers = 1;
  EXPECT_THAT(names(answer_serving(question, 1)), Contains("mtp layers"));
}

// What does not fit

/// One card whose free memory is exactly `room` for the cache of a 98304-byte-a-token model.
ServingQuestion with_room(std::int64_t room, std::int64_t context) {
  model::ModelSpec model = llama("-8b");
  model.layers = 48;
  model.kv_heads = 4;
  model.max_positions = 131072;
  ServingQuestion question = question_of(model, devices_of(1, 1), context);
  question.headroom = 0;
  question.cluster.usable_bytes = 0;
  const ServingBudget budget = serving_budgets(question, {}).front();
  question.cluster.usable_bytes = room - budget.room + budget.logits_per_sequence;
  return question;
}

TEST(ServingFixes, TheLongestContextThatFitsIsNamed) {
  EXPECT_TRUE(answer_serving(with_room(3 * gibi, 32768), 1).plans.front().fits);
  const ServingAnswer longer = answer_serving(with_room(3 * gibi, 32769), 1);
  EXPECT_FALSE(longer.plans.front().fits);
  EXPECT_EQ(longer.plans.front().max_context, 32768);
  ASSERT_NE(fix(longer, "plan.context=32768"), nullptr);
  EXPECT_TRUE(fix(longer, "plan.context=32768")->plan.fits);
  const ServingAnswer less = answer_serving(with_room(3 * gibi - 1, 32768), 1);
  EXPECT_NE(fix(less, "plan.context=32752"), nullptr);
  EXPECT_NE(fix(less, "plan.kv_dtype=fp8"), nullptr);
}

/// 811.7 GB of weights on 640 GB.
TEST(ServingFixes, FewerBitsOrMoreDevices) {
  const ServingAnswer answer =
      answer_serving(question_of(llama(".1-405b"), devices_of(8, h100_bytes), 8192), 1);
  EXPECT_FALSE(answer.plans.front().fits);
  ASSERT_NE(fix(answer, "plan.weights=fp8"), nullptr);
  EXPECT_EQ(fix(answer, "plan.weights=fp8")->plan.replica, Replica{.tp = 8});
  EXPECT_NE(fix(answer, "plan.weights=int4"), nullptr);
  EXPECT_EQ(fix(answer, "plan.kv_dtype=fp8"), nullptr);
  EXPECT_THAT(names(answer), Contains("fewest devices"));
}

/// By trying each number of nodes.
TEST(ServingFixes, FewestDevicesAreTheFewest) {
  for (const char* node : {"8xH100-SXM", "1xH100-SXM"}) {
    ServingQuestion question = question_of(llama(".1-405b"), cluster::parse_cluster(node, "test"), 8192);
    const ServingAnswer answer = answer_serving(question, 1);
    EXPECT_FALSE(answer.plans.front().fits);
    const ServingFix& fewest = answer.fixes.back();
    std::int64_t nodes = 1;
    for (bool fits = false; !fits;) {
      ++nodes;
      ServingQuestion larger = question;
      larger.cluster = cluster::resized(question.cluster, nodes * question.cluster.devices_per_node);
      fits = answer_serving(larger, 1).plans.front().fits;
    }
    EXPECT_EQ(fewest.devices, nodes * question.cluster.devices_per_node);
    EXPECT_EQ(fewest.change, fmt::format("{} devices in {} nodes", fewest.devices, nodes));
  }
}

TEST(ServingFixes, AMeshThatIsTooSmallIsLeftOpen) {
  ServingQuestion question = question_of(llama("-70b"), devices_of(8, h100_bytes));
  question.held = {.tp = 1, .pp = 1};
  const ServingAnswer answer = answer_serving(question, 1);
  EXPECT_FALSE(answer.plans.front().fits);
  ASSERT_NE(fix(answer, "no mesh sizes given"), nullptr);
  EXPECT_EQ(fix(answer, "no mesh sizes given")->plan.replica, Replica{.tp = 2});
}

TEST(ServingFixes, FewerSequencesAtOnce) {
  ServingQuestion question = question_of(llama("-8b"), devices_of(1, h100_bytes), 8192);
  const std::int64_t most = answer_serving(question, 1).plans.front().concurrency;
  question.keys.concurrency = most;
  EXPECT_TRUE(answer_serving(question, 1).plans.front().fits);
  question.keys.concurrency = most + 1;
  const ServingAnswer answer = answer_serving(question, 1);
  EXPECT_FALSE(answer.plans.front().fits);
  EXPECT_GT(answer.plans.front().memory.total(), h100_bytes);
  EXPECT_NE(fix(answer, "plan.concurrency=" + std::to_string(most)), nullptr);
}

// Refusals

TEST(ServingRefusals, AllThatIsWrongComesAtOnce) {
  ServingQuestion question = question_of(llama("-8b"), devices_of(8, h100_bytes), 9000);
  question.keys.mean_context = 9001;
  question.keys.prefix_share = 0.5;
  question.held = {.tp = 3, .ep = 2, .dp_replicate = 4};
  EXPECT_THAT(refusals(question),
              testing::UnorderedElementsAre(
                  HasSubstr("plan.context: 9000 is more than the 8192 positions"),
                  HasSubstr("plan.mean_context: 9001 is more than plan.context 9000"),
                  HasSubstr("plan.prefix_share: 0.5 means nothing"), HasSubstr("mesh.tp_size: 3"),
                  HasSubstr("mesh.tp_size: 3"), HasSubstr("mesh.ep_size"),
                  HasSubstr("takes 12 ranks, but the cluster has 8 devices")));
}

TEST(ServingRefusals, PolicyKeysMustMeanSomething) {
  ServingQuestion question = question_of(llama("-8b"), devices_of(8, h100_bytes));
  question.keys.kv_policy = job::KvPolicy::prefix;
  EXPECT_THAT(refusals(question), Contains(HasSubstr("prefix needs plan.prefix_share")));
  question.keys.kv_policy = job::KvPolicy::reserve;
  question.keys.mean_context = 100;
  EXPECT_THAT(refusals(question),
              Contains(HasSubstr("plan.mean_context: 100 means nothing under plan.kv_policy reserve")));
}

TEST(ServingRefusals, UnknownLengthsAndMemory) {
  model::ModelSpec model = llama("-8b");
  model.max_positions = 0;
  EXPECT_THAT(refusals(question_of(model, devices_of(8, 0))),
              testing::ElementsAre(HasSubstr("usable memory of test is not known"),
                                   HasSubstr("plan.context is not given")));
}

TEST(ServingRefusals, ExpertsMustSpreadOverAStage) {
  ServingQuestion question = question_of(mixtral(), devices_of(8, h100_bytes));
  question.held = {.tp = 8, .ep = 4, .etp = 1};
  EXPECT_THAT(refusals(question),
              testing::ElementsAre(HasSubstr("mesh.ep_size x mesh.etp_size is mesh.tp_size")));
  question.held = {.tp = 8, .ep = 4};
  EXPECT_THAT(refusals(question), IsEmpty());
}

TEST(ServingQuestions, HoldWhatTheJobGives) {
  const job::Job job = job::parse_job(
      "plan: {task: serve, context: 4096, weights: fp8, kv_policy: reserve, headroom: 0.1}\n"
      "mesh: {tp_size: 2, dp_replicate_size: 1}\n",
      "a.yaml", {"plan.concurrency=7"});
  const ServingQuestion question = serving_question(job, llama("-8b"), devices_of(8, h100_bytes));
  EXPECT_EQ(question.keys.context, 4096);
  EXPECT_EQ(question.keys.concurrency, 7);
  EXPECT_EQ(question.keys.weights, job::WeightFormat::fp8);
  EXPECT_EQ(question.keys.kv_policy, job::KvPolicy::reserve);
  EXPECT_EQ(question.headroom, 0.1);
  EXPECT_EQ(question.held.tp, 2);
  EXPECT_EQ(question.held.dp_replicate, 1);
  EXPECT_FALSE(question.held.pp);
}

TEST(ServingQuestions, AxesOfTrainingAreRefused) {
  job::Job job;
  job.mesh.cp = 2;
  job.mesh.dp_shard = 4;
  try {
    serving_question(job, llama("-8b"), devices_of(8, h100_bytes));
    FAIL();
  } catch (const RequestError& error) {
    EXPECT_THAT(error.problems(), testing::ElementsAre(HasSubstr("mesh.cp_size: 2 has no use in serving"),
                                                       HasSubstr("mesh.dp_shard_size: 4 has no use")));
  }
}

/// Absurd numbers are counted without overflow and end quickly.
TEST(ServingQuestions, AbsurdNumbersEndInAnAnswer) {
  ServingQuestion question = question_of(llama("-8b"), devices_of(8, h100_bytes));
  question.model.max_positions = std::int64_t{1} << 30;
  question.keys = {.context = 1 << 30, .concurrency = 1 << 30, .kv_block = 1 << 20, .prefill_chunk = 1 << 24};
  const ServingAnswer answer = answer_serving(question, 3);
  EXPECT_FALSE(answer.plans.front().fits);
  EXPECT_GT(answer.plans.front().memory.total(), h100_bytes);
}

}  // namespace
}  // namespace ndmesh::plan
