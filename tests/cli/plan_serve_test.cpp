#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "cli/program.h"

namespace ndmesh::testing_cli {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

std::vector<std::string> serve(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"plan", "llama-3-70b", "plan.task=serve", "cluster=8xH100-SXM"});
  return arguments;
}

TEST(PlanServe, JsonHasTheKeysOfATrainingPlanAndItsOwn) {
  const Result result = run(serve({"--json", "--top", "2"}));
  ASSERT_EQ(result.status, 0) << result.err;
  const Json answer = Json::parse(result.out);
  for (const char* key :
       {"legal", "judged", "simulated", "seconds", "plans", "baselines", "warnings", "fixes"}) {
    EXPECT_TRUE(answer.contains(key)) << key;
  }
  EXPECT_EQ(answer.at("kv_bytes_per_token"), 327680);
  ASSERT_EQ(answer.at("plans").size(), 2U);
  const Json& plan = answer.at("plans").front();
  EXPECT_EQ(plan.at("mesh").at("tp"), 2);
  EXPECT_EQ(plan.at("mesh").at("dp_replicate"), 4);
  EXPECT_EQ(plan.at("replicas"), 4);
  EXPECT_EQ(plan.at("max_context"), 8192);
  EXPECT_EQ(plan.at("kv_bytes_per_token"), 163840);
  EXPECT_EQ(plan.at("usable_bytes"), 85520809984);
  std::int64_t sum = 0;
  for (const Json& bytes : plan.at("memory")) sum += bytes.get<std::int64_t>();
  EXPECT_LE(sum, 85520809984);
  EXPECT_EQ(plan.at("memory").at("kv_cache"), plan.at("concurrency").get<std::int64_t>() / 4 * 8192 * 163840);
}

TEST(PlanServe, NothingThatFitsIsAnAnswer) {
  const Result result = run(serve({"mesh.tp_size=1", "mesh.pp_size=1", "plan.kv_policy=reserve"}));
  EXPECT_EQ(result.status, 0);
  for (const char* part : {"nothing fits", "ways to fit", "no mesh sizes given", "headroom", "in no tensor",
                           "times of serving are not predicted yet"}) {
    EXPECT_THAT(result.out, HasSubstr(part));
  }
}

TEST(PlanServe, ImpossibleRequestsAreRefusedAsAWhole) {
  const Result result = run(serve({"mesh.tp_size=3", "plan.context=100000"}));
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("plan.context: 100000 is more than the 8192 positions"));
  EXPECT_THAT(result.err, HasSubstr("mesh.tp_size: 3"));
  EXPECT_EQ(run(serve({"mesh.cp_size=2"})).status, 2);
  EXPECT_THAT(run(serve({"plan.weights=int3"})).err, HasSubstr("bfloat16, fp8, int8, int4"));
}

}  // namespace
}  // namespace ndmesh::testing_cli
