#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "cli/program.h"

/// `ndmesh plan` for training, as scripts and people meet it.
namespace ndmesh::testing_cli {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

std::vector<std::string> keys_of(const Json& object) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.push_back(key);
  return keys;
}

const std::vector<std::string> plan_keys = {"mesh",         "order",
                                            "micro",        "micro_batches",
                                            "schedule",     "chunks",
                                            "zero",         "recompute",
                                            "offload",      "offload_activations",
                                            "levels",       "worst_rank",
                                            "memory",       "usable_bytes",
                                            "fits",         "bubble",
                                            "step_seconds", "tokens_per_second_per_device",
                                            "mfu",          "exposed",
                                            "reasons"};

void expect_plan(const Json& plan) {
  for (const std::string& key : plan_keys) EXPECT_TRUE(plan.contains(key)) << key;
  EXPECT_THAT(keys_of(plan.at("mesh")),
              testing::UnorderedElementsAre("pp", "dp_replicate", "dp_shard", "cp", "tp", "ep", "etp"));
  EXPECT_THAT(
      keys_of(plan.at("memory")),
      testing::UnorderedElementsAre("parameters", "master_weights", "gradients", "optimizer", "activations",
                                    "gathered", "buffers", "logits", "workspace", "kv_cache", "headroom"));
  double sum = 0;
  for (const Json& seconds : plan.at("time")) sum += seconds.get<double>();
  EXPECT_NEAR(sum, plan.at("step_seconds").get<double>(), 1e-9 * sum);
  double exposed = 0;
  for (const Json& entry : plan.at("exposed")) {
    exposed += entry.at("skew").get<double>() + entry.at("transfer").get<double>();
  }
  EXPECT_NEAR(exposed, plan.at("time").at("exposed").get<double>(), 1e-9 * sum);
}

TEST(Plan, ShowsTheLayersOfUnequalStages) {
  const std::string job = file_with("plan-layers.yaml",
                                    "model: {preset: llama-3-8b}\n"
                                    "batch: {global: 32}\n"
                                    "cluster: 8xH100-SXM\n"
                                    "mesh: {pp_size: 4, dp_shard_size: 2}\n"
                                    "pipeline: {schedule: 1f1b}\n");
  EXPECT_THAT(run({"plan", job, "pipeline.layers=cost"}).out, HasSubstr("layers by stage: 9 9 9 5\n"));
  EXPECT_THAT(run({"plan", job}).out, testing::Not(HasSubstr("layers by stage")));
  const Json answer = Json::parse(run({"plan", job, "--json", "pipeline.layers=[9, 8, 8, 7]"}).out);
  EXPECT_EQ(answer.at("plans").at(0).at("layers"), Json::parse("[9, 8, 8, 7]"));
}

TEST(Plan, JsonHasTheKeysOfTheContract) {
  const std::string job = file_with("plan-keys.yaml",
                                    "model: {preset: llama-3-8b}\n"
                                    "batch: {global: 24, seq_len: 4096}\n"
                                    "cluster: {nodes: 2, node: 8xH100-SXM, nics: 8x400G}\n"
                                    "plan: {runtime: megatron}\n");
  const Result result = run({"plan", job, "--json", "--top", "4", "mesh.pp_size=2"});
  ASSERT_EQ(result.status, 0) << result.err;
  const Json answer = Json::parse(result.out);
  for (const char* key :
       {"legal", "judged", "simulated", "seconds", "plans", "baselines", "warnings", "fixes"}) {
    EXPECT_TRUE(answer.contains(key)) << key;
  }
  EXPECT_GE(answer.at("judged"), answer.at("legal"));
  EXPECT_GE(answer.at("legal"), answer.at("simulated"));
  ASSERT_EQ(answer.at("plans").size(), 4U);
  double before = 0;
  for (const Json& plan : answer.at("plans")) {
    expect_plan(plan);
    EXPECT_EQ(plan.at("mesh").at("pp"), 2);
    EXPECT_EQ(plan.at("stages").size(), 2U);
    EXPECT_GE(plan.at("step_seconds").get<double>(), before);
    before = plan.at("step_seconds").get<double>();
    EXPECT_NEAR(plan.at("tokens_per_second_per_device").get<double>() * 16 * before, 24.0 * 4096, 1e-6);
  }
  ASSERT_EQ(answer.at("baselines").size(), 4U);
  for (const Json& row : answer.at("baselines")) {
    EXPECT_TRUE(row.contains("name"));
    if (row.at("legal")) expect_plan(row);
  }
  // 24 sequences are no multiple of 16 batch ranks.
  const Json& plain = answer.at("baselines").at(1);
  EXPECT_FALSE(plain.at("legal"));
  EXPECT_EQ(plain.at("mesh").at("dp_replicate"), 16);
  EXPECT_THAT(plain.at("reasons").dump(), HasSubstr("batch.global: 24 is not a multiple of 16"));
}

TEST(Plan, WhatDoesNotFitComesWithPricedWaysToFit) {
  const Result result = run({"plan", "llama-3-70b", "cluster=8xH100-SXM", "batch.global=64",
                             "batch.seq_len=8192", "--json", "--top", "1"});
  ASSERT_EQ(result.status, 0) << result.err;
  const Json answer = Json::parse(result.out);
  EXPECT_FALSE(answer.at("plans").front().at("fits"));
  ASSERT_FALSE(answer.at("fixes").empty());
  for (const Json& fix : answer.at("fixes")) {
    expect_plan(fix);
    EXPECT_TRUE(fix.at("fits")) << fix.at("change");
    EXPECT_TRUE(fix.at("devices").is_number_integer());
  }
}

TEST(Plan, ATableForPeople) {
  const Result result = run({"plan", "llama-3-8b", "cluster=2x8xH100-SXM", "batch.global=32",
                             "batch.seq_len=4096", "mesh.pp_size=2", "--explain"});
  ASSERT_EQ(result.status, 0) << result.err;
  for (const char* part : {"candidates judged in",
                           "tok/s/dev",
                           "best: ",
                           "ranks, fastest axis first",
                           "GiB:",
                           "in no tensor",
                           "reserved by stage: ",
                           "baselines",
                           "one device",
                           "plain data parallel",
                           "zero 3 over all",
                           "hybrid",
                           "1. Domains.",
                           "2. Tensor",
                           "3. Data",
                           "4. Pipeline",
                           "5. Context",
                           "6. Divisibility",
                           "7. To benchmark",
                           "beyond nvlink",
                           "GiB of the worst rank",
                           "percent of a step",
                           "Stays whole:",
                           "On the critical path:",
                           "Fails when"}) {
    EXPECT_THAT(result.out, HasSubstr(part));
  }
}

TEST(Plan, ExpertsHaveTheirOwnViewOfTheRanks) {
  const Result result = run({"plan", "mixtral-8x7b", "cluster=2x8xH100-SXM", "batch.global=64",
                             "batch.seq_len=4096", "mesh.ep_size=4", "mesh.etp_size=1", "mesh.pp_size=2",
                             "mesh.tp_size=1", "mesh.cp_size=1", "mesh.dp_replicate_size=1", "--top", "1"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("16 ranks twice: pp=2,dp_shard=8,ep=4, and for experts "
                                    "pp=2,edp=2,ep=4,etp=1"));
}

TEST(Plan, ARateThatNothingReachesIsSaidToBeOutOfReach) {
  const Result result = run({"plan", "llama-1m", "cluster=1xH100-SXM", "batch.global=1", "batch.seq_len=8",
                             "plan.max_batch=2", "plan.tokens_per_second=1e15", "--top", "1"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("(1 device)"));
  EXPECT_THAT(result.out, HasSubstr("1 to 2 sequences of 8 tokens a step"));
  EXPECT_THAT(result.out, HasSubstr("none of the changes that were tried is enough"));
}

TEST(Plan, RefusalsNameEverythingThatIsWrong) {
  const Result result = run({"plan", "llama-3-8b", "cluster=8xH100-SXM", "batch.global=64", "mesh.tp_size=3",
                             "plan.max_batch=2", "plan.tokens=1e12"});
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(result.out, "");
  for (const char* part : {"mesh.tp_size: 3 does not divide the 32 query heads", "8 KV heads",
                           "plan.max_batch: 2 is below batch.global 64",
                           "plan.tokens 1000000000000 and plan.days 0 need each other"}) {
    EXPECT_THAT(result.err, HasSubstr(part));
  }
  for (const char* bad : {"cluster=8xFoo", "plan.headroom=1.5", "plan.runtime=fsdp", "precision.dtype=fp8",
                          "plan.fo=1", "mesh.ep_size=2"}) {
    EXPECT_EQ(run({"plan", "llama-3-8b", "cluster=8xH100-SXM", bad}).status, 2) << bad;
  }
}

}  // namespace
}  // namespace ndmesh::testing_cli
