#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "cli/program.h"

namespace ndmesh::testing_cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using Json = nlohmann::json;

Json document(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"inspect", "cluster"});
  arguments.emplace_back("--json");
  const Result result = run(arguments);
  EXPECT_EQ(result.status, 0) << result.err;
  return Json::parse(result.out, nullptr, false);
}

TEST(InspectCluster, ShowsDevicesLinksAndLevels) {
  const Result result =
      run({"inspect", "cluster", "{nodes: 64, node: 8xH100-SXM, nics: 8x400G, oversubscription: 2}"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("512 devices, 64 nodes of 8"), HasSubstr("79.65 GiB"), HasSubstr("3350 GB/s"),
                    HasSubstr("bfloat16 989, float32 67, 8-bit 1979 TFLOP/s, dense"),
                    HasSubstr("[0]=[1]=[2]=[3]=[4]=[5]=[6]=[7]"), HasSubstr("nics     8 of 50 GB/s")));
  EXPECT_THAT(result.out, testing::ContainsRegex("nvlink +8 +64 +450 GB/s +450 GB/s +0.6 us"));
  EXPECT_THAT(result.out, testing::ContainsRegex("network +512 +1 +25 GB/s +50 GB/s +2.7 us"));
}

TEST(InspectCluster, DrawsPairsSocketsAndRacks) {
  const Result box =
      run({"inspect", "cluster",
           "{node: 8xA100-PCIe, scale_up: {devices: 2}, numa: {nodes: 2, bandwidth: 60GB/s}}"});
  EXPECT_THAT(box.out, AllOf(HasSubstr("numa 0   [0]=[1] [2]=[3]"), HasSubstr("numa 1   [4]=[5] [6]=[7]")));
  EXPECT_THAT(run({"inspect", "cluster", "4xRTX-4090"}).out, HasSubstr(" [0] [1] [2] [3] "));
  EXPECT_THAT(run({"inspect", "cluster", "36x4xGB200"}).out, HasSubstr("up to 18 nodes"));
  EXPECT_THAT(run({"inspect", "cluster", "72xGB200"}).out, HasSubstr("=[16]=[17]="));
}

TEST(InspectCluster, JsonHasEveryFigureWithItsSource) {
  const Json cluster = document({"18x4xGB200"});
  EXPECT_EQ(cluster["devices"], 72);
  EXPECT_EQ(cluster["usable_bytes"], std::int64_t{189471} << 20);
  EXPECT_EQ(cluster["levels"].size(), 1U);
  EXPECT_EQ(cluster["levels"][0]["domains"], 1);
  EXPECT_EQ(cluster["levels"][0]["bandwidth"], 900e9);
  EXPECT_TRUE(cluster["host_memory_bytes"].is_null());
  bool has_peak = false;
  for (const Json& figure : cluster["device"]["catalogue"]) {
    if (figure["figure"] != "bf16_tflops") continue;
    has_peak = true;
    EXPECT_EQ(figure["value"], "2500");
    EXPECT_FALSE(figure["source"].get<std::string>().empty());
  }
  EXPECT_TRUE(has_peak);
}

TEST(InspectCluster, TakesFilesJobsAndOverrides) {
  const std::string file = file_with("cluster.yaml", "{node: 8xA100-SXM, nodes: 2}\n");
  EXPECT_EQ(document({file})["devices"], 16);
  const std::string job =
      file_with("job.yaml", "model: {preset: llama-1m}\ncluster: {node: 8xA100-SXM, nodes: 4}\n");
  EXPECT_EQ(document({job})["devices"], 32);
  EXPECT_EQ(document({job, "cluster.nodes=6"})["devices"], 48);
  EXPECT_EQ(document({"cluster=8xL40S"})["devices"], 8);
}

TEST(InspectCluster, WithoutASourceItIsThisMachine) {
  const Json cluster = document({});
  EXPECT_EQ(cluster["device"]["name"], "cpu");
  EXPECT_TRUE(cluster["device"]["bf16_flops"].is_null());
  EXPECT_GE(cluster["devices"], 1);
  EXPECT_THAT(run({"inspect", "cluster"}).out, HasSubstr("not known until they are measured"));
}

TEST(InspectCluster, RefusalsAreOfTheRequest) {
  const auto refused = [](const std::vector<std::string>& words, const std::string& part) {
    std::vector<std::string> arguments = {"inspect", "cluster"};
    arguments.insert(arguments.end(), words.begin(), words.end());
    const Result result = run(arguments);
    EXPECT_EQ(result.status, 2);
    EXPECT_THAT(result.out, IsEmpty());
    EXPECT_THAT(result.err, HasSubstr(part));
  };
  refused({"8xH100-SMX"}, "did you mean H100-SXM?");
  refused({"no-such.yaml"}, "cannot be read");
  refused({"8xL40S", "4xL40S"}, "one SOURCE is inspected at a time");
  refused({"{nodes: 2"}, "is not valid YAML");
}

}  // namespace
}  // namespace ndmesh::testing_cli
