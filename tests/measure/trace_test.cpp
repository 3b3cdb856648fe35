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

TEST(Trace, SaysWhenItCannotBeWritten) {
  EXPECT_THROW(Trace(1).write("/nowhere/trace.json"), RunError);
}

}  // namespace
}  // namespace ndmesh::measure
