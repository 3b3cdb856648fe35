#include "ndmesh/measure/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "ndmesh/base/error.h"

namespace ndmesh::measure {
namespace {

nlohmann::json written(const Trace& trace) {
  const std::string file = testing::TempDir() + "ndmesh_trace.json";
  trace.write(file);
  return nlohmann::json::parse(std::ifstream(file));
}

TEST(Trace, ShowsPartsAndCollectivesOfEveryRank) {
  Trace trace(2);
  comm::run_ranks(mesh::Mesh({.dp_shard = 2}), {}, [&](comm::Communicator& communicator) {
    RankTrace& mine = trace.of(communicator.rank());
    StepClock clock;
    clock.observe([&](Part part, double begin, double end) { mine.add(part, begin, end); });
    communicator.observe([&](const comm::CollectiveRecord& record) { mine.add(record); });
    clock.begin();
    clock.enter(Part::compute);
    const at::Tensor sum = at::ones({1000});
    communicator.group(mesh::loss_axes).all_reduce({sum}, comm::Reduction::sum, "a label");
    clock.end();
    communicator.observe({});
  });
  int parts = 0;
  int waits = 0;
  int begins = 0;
  double earliest = 1e9;
  const nlohmann::json document = written(trace);
  for (const auto& event : document["traceEvents"]) {
    if (event["ph"] == "M") {
      continue;
    }
    earliest = std::min(earliest, event["ts"].get<double>());
    parts += event["name"] == "compute" ? 1 : 0;
    begins += event["ph"] == "b" ? 1 : 0;
    if (event["name"] == "dp_shard/all_reduce") {
      ++waits;
      EXPECT_EQ(event["args"]["label"], "a label");
      EXPECT_EQ(event["args"]["bytes"], 4000);  // 2 (n - 1) / n of 4000, over 2 ranks
      EXPECT_GE(event["dur"].get<double>() + 1e-3,
                event["args"]["skew_us"].get<double>() + event["args"]["transfer_us"].get<double>());
    }
  }
  EXPECT_EQ(parts, 2);
  EXPECT_EQ(waits, 2);
  EXPECT_EQ(begins, 2);
  EXPECT_EQ(earliest, 0);
}

TEST(Trace, ShowsWhatTheScheduleDoes) {
  using schedule::ActionKind;
  Trace trace(2);
  trace.of(0).add(schedule::Action{ActionKind::forward, 1, 3}, 10.0, 10.25);
  trace.of(0).add(schedule::Action{ActionKind::send_forward, 1, 3}, 10.25,
                  10.5);  // a message: among the collectives
  trace.of(0).add(schedule::Action{ActionKind::weight_grad, 0, 2}, 10.5, 11.0);
  std::vector<nlohmann::json> shown;
  const nlohmann::json document = written(trace);
  for (const auto& event : document["traceEvents"]) {
    if (event["ph"] == "X") {
      shown.push_back(event);
    }
  }
  ASSERT_EQ(shown.size(), 2U);
  EXPECT_EQ(shown[0]["name"], schedule::name_of(ActionKind::forward));
  EXPECT_EQ(shown[0]["args"], (nlohmann::json{{"chunk", 1}, {"micro_batch", 3}}));
  EXPECT_EQ(shown[0]["ts"], 0);
  EXPECT_EQ(shown[0]["dur"], 250'000);
  EXPECT_EQ(shown[1]["name"], schedule::name_of(ActionKind::weight_grad));
  EXPECT_EQ(shown[1]["ts"], 500'000);
}

TEST(Trace, SaysWhenItCannotBeWritten) {
  EXPECT_THROW(Trace(1).write("/nowhere/trace.json"), RunError);
}

}  // namespace
}  // namespace ndmesh::measure
