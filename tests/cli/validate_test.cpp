#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/program.h"

namespace ndmesh::testing_cli {
namespace {

using testing::HasSubstr;

std::string table(const std::string& name) {
  return std::string(NDMESH_TEST_DATA) + "/measurements/" + name;
}

std::string content(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(Validate, JsonHasEveryFigure) {
  const Result result = run({"validate", table("training.csv"), "--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  const auto json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json["rows"], 27);
  for (const char* key : {"id", "reason"}) EXPECT_TRUE(json["left_out"][0].contains(key)) << key;
  for (const char* key : {"rows", "mape"}) EXPECT_TRUE(json["memory"].contains(key)) << key;
  for (const char* key : {"rows", "right"}) EXPECT_TRUE(json["verdict"].contains(key)) << key;
  for (const char* key : {"rows", "mape_uncalibrated", "mape_calibrated", "tau", "regret"}) {
    EXPECT_TRUE(json["time"].contains(key)) << key;
  }
  for (const char* key :
       {"name", "rows", "memory_mape", "mape_uncalibrated", "mape_calibrated", "tau", "regret"}) {
    EXPECT_TRUE(json["groups"][0].contains(key)) << key;
  }
  EXPECT_EQ(json["groups"][0]["name"], "simumax-b200");
  EXPECT_LT(json["groups"][0]["memory_mape"], 1.0);
}

TEST(Validate, TableRowsAndPage) {
  const std::string page = file_with("accuracy.md", "");
  const Result result = run({"validate", table("vtrain.csv"), "--rows", "--page", page});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("40 rows, 40 judged"));
  EXPECT_THAT(result.out, HasSubstr("vtrain-one-node"));
  EXPECT_THAT(result.out, HasSubstr("line 41 "));
  EXPECT_THAT(content(page), HasSubstr("# Accuracy of the planner"));
  EXPECT_THAT(content(page), HasSubstr("`vtrain.csv`: 40 rows, 40 judged"));
}

TEST(Validate, LimitsThatDoNotHoldEndWithThree) {
  const Result held = run({"validate", table("vtrain.csv"), "--limit", "mape_uncalibrated=1000", "tau=-1"});
  EXPECT_EQ(held.status, 0) << held.err;
  const Result broken = run({"validate", table("vtrain.csv"), "--limit", "mape_uncalibrated=0.001"});
  EXPECT_EQ(broken.status, 3);
  EXPECT_THAT(broken.err, HasSubstr("limit: at most 0.001"));
}

TEST(Validate, Refusals) {
  const Result missing = run({"validate", "nowhere.csv"});
  EXPECT_EQ(missing.status, 2);
  EXPECT_THAT(missing.err, HasSubstr("nowhere.csv"));
  const Result both = run({"validate", table("vtrain.csv"), "--limit", "tow=1", "--limit", "tau=x"});
  EXPECT_EQ(both.status, 2);
  EXPECT_THAT(both.err, testing::AllOf(HasSubstr("did you mean tau?"), HasSubstr("allowed: a number")));
  const Result other = run({"validate", file_with("other.csv", "a,b\n1,2\n")});
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.err, HasSubstr("line 1 lacks the column layers"));
}

TEST(Calibrate, FitsAndWritesConstants) {
  const std::string out = file_with("constants.csv", "");
  const Result result = run({"calibrate", "--from", table("vtrain.csv"), "--out", out});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("Ampere, deepspeed: fit to 12 rows of vtrain.csv"));
  EXPECT_THAT(content(out), testing::StartsWith("name,architecture,runtime,unit,value,spread,origin\n"));
  const Result json = run({"calibrate", "--from", table("vtrain.csv"), "--json"});
  EXPECT_EQ(nlohmann::json::parse(json.out)["fits"][0]["rows"], 12);
}

TEST(Calibrate, Refusals) {
  const Result machine = run({"calibrate"});
  EXPECT_EQ(machine.status, 2);
  EXPECT_THAT(machine.err, HasSubstr("measuring this machine, is not built yet"));
  const Result empty =
      run({"calibrate", "--from",
           file_with("empty.csv",
                     "gpus,global_batch,micro_batch,hidden,heads,layers,seq_len,tp,dp,pp,iteration_ms\n")});
  EXPECT_EQ(empty.status, 2);
  EXPECT_THAT(empty.err, HasSubstr("no cluster has three rows with a time"));
}

}  // namespace
}  // namespace ndmesh::testing_cli
