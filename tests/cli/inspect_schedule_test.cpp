#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/program.h"

namespace ndmesh::testing_cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using Json = nlohmann::json;
using Words = std::vector<std::string>;

Result inspect(const Words& words) {
  Words arguments = {"inspect", "schedule"};
  arguments.insert(arguments.end(), words.begin(), words.end());
  return run(arguments);
}

Json json_of(Words words) {
  words.emplace_back("--json");
  const Result result = inspect(words);
  EXPECT_EQ(result.status, 0) << result.err;
  return Json::parse(result.out, nullptr, false);
}

void expect_refused(const Words& words, const std::string& part) {
  const Result result = inspect(words);
  EXPECT_EQ(result.status, 2) << result.err;
  EXPECT_THAT(result.out, IsEmpty());
  EXPECT_THAT(result.err, HasSubstr(part));
}

TEST(InspectSchedule, DrawsTheTimeline) {
  const Result result = inspect({"gpipe", "--ranks", "2", "--micro-batches", "2"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("rank   0  01...aabb  holds 2\n"),
                                HasSubstr("rank   1  .01aabb..  holds 2\n"), HasSubstr("bubble 33.3 %")));
}

TEST(InspectSchedule, OneDocument) {
  const Json json = json_of({"1f1b", "--ranks", "4", "--micro-batches", "8", "--width", "40"});
  EXPECT_EQ(json["seconds"], 33.0);
  EXPECT_EQ(json["least_seconds"], 33.0);
  EXPECT_NEAR(json["bubble"].get<double>(), 3.0 / 11.0, 1e-12);
  EXPECT_EQ(json["peak_in_flight"], Json::parse("[4, 3, 2, 1]"));
  EXPECT_EQ(json["timeline"].size(), 4U);
  EXPECT_EQ(json["timeline"][0].get<std::string>().size(), 40U);
  EXPECT_EQ(json["intervals"].size(), 4U * 8U * 2U);
  const Json costly = json_of({"1f1b", "--ranks", "2", "--micro-batches", "1", "--forward", "2",
                               "--input-grad", "3", "--weight-grad", "4", "--send", "0.5"});
  EXPECT_EQ(costly["seconds"], 2 * 9 + 2 * 0.5);
}

TEST(InspectSchedule, WritesAPicture) {
  const std::filesystem::path folder = std::filesystem::path(file_with("picture", "")).parent_path() / "made";
  const std::filesystem::path file = folder / "here" / "timeline.svg";
  ASSERT_EQ(inspect({"1f1b", "--ranks", "3", "--micro-batches", "4", "--svg", file.string()}).status, 0);
  std::stringstream picture;
  picture << std::ifstream(file).rdbuf();
  EXPECT_THAT(picture.str(), testing::StartsWith("<svg"));
  EXPECT_THAT(picture.str(), testing::EndsWith("</svg>\n"));
  std::size_t passes = 0;
  for (std::size_t at = 0; (at = picture.str().find("<rect", at)) != std::string::npos; ++at) ++passes;
  EXPECT_GE(passes, 3U * 4U * 2U);  // each a forward and a backward
  const Result refused = inspect({"1f1b", "--ranks", "3", "--micro-batches", "4", "--svg", file / "x.svg"});
  EXPECT_EQ(refused.status, 1) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("x.svg\": cannot be written"));
}

TEST(InspectSchedule, TakesTheShapeOfAJob) {
  const std::string job = file_with("pipeline.yaml",
                                    "model: {preset: llama-1m}\nbatch: {global: 24, micro: 2}\n"
                                    "mesh: {pp_size: 2, dp_shard_size: 2}\npipeline: {schedule: zb-v}\n");
  const Json json = json_of({job});
  EXPECT_EQ(json["schedule"], "zb-v");
  EXPECT_EQ(json["ranks"], 2);
  EXPECT_EQ(json["chunks"], 2);
  EXPECT_EQ(json["micro_batches"], 6);
  const Json other = json_of({job, "interleaved", "batch.micro=1", "--ranks", "4", "--chunks", "3"});
  EXPECT_EQ(other["schedule"], "interleaved");
  EXPECT_EQ(other["ranks"], 4);
  EXPECT_EQ(other["chunks"], 3);
  EXPECT_EQ(other["micro_batches"], 12);
}

TEST(InspectSchedule, ListsTheActionsOfARank) {
  const Json json = json_of({"1f1b", "--ranks", "2", "--micro-batches", "1", "--rank", "1"});
  std::vector<std::string> names;
  for (const Json& action : json["actions"]) names.push_back(action["action"]);
  EXPECT_THAT(names,
              testing::ElementsAre("receive_forward", "forward", "backward", "send_backward", "optimizer"));
  EXPECT_THAT(inspect({"1f1b", "--ranks", "2", "--micro-batches", "1", "--rank", "0"}).out,
              HasSubstr("send_forward      chunk 0  micro-batch 0\n"));
}

TEST(InspectSchedule, RefusesWhatIsNoSchedule) {
  expect_refused({"1f1b", "--micro-batches", "8"}, "--ranks P");
  expect_refused({"1f1b", "--ranks", "4"}, "--micro-batches M");
  expect_refused({"interleaved", "--ranks", "4", "--micro-batches", "11"}, "nearest: 10 or 12");
  expect_refused({"interleaved", "--ranks", "4", "batch.global=11"},
                 "batch.global: 11 makes 11 micro-batches");
  expect_refused({"1f1b", "--ranks", "4", "batch.global=9", "batch.micro=2"}, "nearest: 8 or 10");
  expect_refused({"zb-v", "--ranks", "4", "--micro-batches", "8", "--chunks", "3"}, "each rank has 2 chunks");
  expect_refused({"1f1b", "--ranks", "0", "--micro-batches", "8"}, "mesh.pp_size: 0");
  expect_refused({"1f1b", "--ranks", "4", "--micro-batches", "1000000"}, "more than the 2097152 passes");
  expect_refused({"1f1b", "--ranks", "4", "--micro-batches", "100000"}, "too many to show; at most 65536");
  expect_refused({"1f1b", "--ranks", "4", "--micro-batches", "4", "--rank", "4"},
                 "--rank: 4 is no rank; 0 to 3");
  expect_refused({"1f1b", "--ranks", "4", "--micro-batches", "4", "--width", "0"}, "--width: 0");
  for (const char* seconds : {"-1", "nan", "inf", "1e300"})
    expect_refused({"1f1b", "--ranks", "4", "--micro-batches", "4", "--send", seconds}, "0 to 1e9 seconds");
  expect_refused({"1f2b", "--ranks", "4", "--micro-batches", "4"}, "1f2b");
}

TEST(InspectSchedule, ActionsWithoutTimeAreDrawnToo) {
  const Result result = inspect({"1f1b", "--ranks", "2", "--micro-batches", "2", "--forward", "0",
                                 "--input-grad", "0", "--weight-grad", "0"});
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.out, AllOf(HasSubstr("bubble 0.0 %"), Not(HasSubstr("nan"))));
}

TEST(InspectSchedule, PrintsThePicturesOfItsPage) {
  std::stringstream page;
  page << std::ifstream(NDMESH_TEST_DATA "/../../docs/schedules.md").rdbuf();
  const std::string text = page.str(), command = "```sh\nndmesh ", picture = "\n```\n\n```text\n";
  int pictures = 0;
  for (std::size_t at = text.find(command); at != std::string::npos; at = text.find(command, at + 1)) {
    const std::size_t words = at + command.size();
    const std::size_t end = text.find(picture, words);
    ASSERT_NE(end, std::string::npos);
    std::istringstream line(text.substr(words, end - words));
    const Words arguments(std::istream_iterator<std::string>(line), {});
    const std::size_t shown = end + picture.size();
    EXPECT_EQ(run(arguments).out, text.substr(shown, text.find("```", shown) - shown));
    ++pictures;
  }
  EXPECT_EQ(pictures, 6);
}

}  // namespace
}  // namespace ndmesh::testing_cli
