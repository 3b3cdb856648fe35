#include "ndmesh/measure/record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ndmesh::measure {
namespace {

StepReport example() {
  StepReport report;
  report.step = 7;
  report.loss = 2.0 / 3.0;
  report.grad_norm = 1.5;
  report.lr = 3e-4;
  report.tokens = 4096;
  report.seconds = 2.0;
  report.flops_per_token = 1e9;
  report.times.total = 2.0;
  report.times[Part::compute] = 1.5;
  report.times[Part::exposed] = 0.5;
  report.times.exposed["dp_shard/all_gather"] = {0.2, 0.3};
  report.memory[MemoryCategory::parameters] = 1024;
  report.memory_at_peak[MemoryCategory::parameters] = 1000;
  report.memory_peaks[static_cast<std::size_t>(MemoryCategory::parameters)] = {1, 2, 1024, 3};
  return report;
}

TEST(Record, StepHasTheKeysOfTheContract) {
  const nlohmann::json line = to_json(example());
  for (const char* key : {"kind", "step", "loss", "grad_norm", "lr", "tokens", "seconds", "tokens_per_second",
                          "mfu", "peak_rss_bytes", "memory", "time", "exposed"}) {
    EXPECT_TRUE(line.contains(key)) << key;
  }
  EXPECT_EQ(line["kind"], "step");
  EXPECT_EQ(line["tokens_per_second"], 2048.0);
  EXPECT_EQ(line["memory"].size(), memory_category_count);
  EXPECT_EQ(line["memory"]["parameters"], 1024);
  EXPECT_EQ(line["memory_at_peak"]["parameters"], 1000);
  EXPECT_EQ(line["ranks"]["memory"].size(), 1);  // those that some rank used
  EXPECT_EQ(line["ranks"]["memory"]["parameters"]["max_rank"], 3);
  EXPECT_EQ(line["time"].size(), part_count);
  EXPECT_EQ(line["exposed"]["dp_shard/all_gather"]["transfer"], 0.3);
}

TEST(Record, LossKeepsSeventeenDigits) {
  const double back = nlohmann::json::parse(to_json(example()).dump())["loss"].get<double>();
  EXPECT_EQ(back, 2.0 / 3.0);
}

TEST(Record, UtilisationOnlyForAKnownPeak) {
  StepReport report = example();
  EXPECT_TRUE(to_json(report)["mfu"].is_null());
  report.peak_flops = 8.192e12;  // 1e9 FLOPs a token x 2048 tokens/s = 2.048e12
  EXPECT_DOUBLE_EQ(to_json(report)["mfu"].get<double>(), 0.25);
}

TEST(Record, StepLineHasOneWidth) {
  StepReport small = example();
  StepReport large = example();
  large.step = 123456;
  large.loss = 123.4567;
  large.seconds = 0.001;
  large.memory_total.max = 7e9;
  EXPECT_EQ(step_line(small, 9).size(), step_line(large, 200000).size());
}

TEST(Record, SpreadNamesTheFirstLargest) {
  const Spread odd = spread_of({3, 9, 9});
  EXPECT_EQ(odd.min, 3);
  EXPECT_EQ(odd.median, 9);
  EXPECT_EQ(odd.max_rank, 1);
  EXPECT_EQ(spread_of({1, 2, 3, 10}).median, 2.5);
}

TEST(Record, MemoryTableShowsBothColumnsAndLeavesZeroLinesOut) {
  MemoryBytes predicted, counted;
  predicted[MemoryCategory::gradients] = 2048;
  counted[MemoryCategory::gradients] = 1024;
  const std::string table = memory_table({predicted, 0}, {counted, 4096});
  EXPECT_THAT(table, testing::HasSubstr("gradients"));
  EXPECT_THAT(table, testing::HasSubstr("2.00 KiB"));
  EXPECT_THAT(table, testing::HasSubstr("1.00 KiB"));
  EXPECT_THAT(table, testing::ContainsRegex("host memory +0 B +4.00 KiB"));
  EXPECT_THAT(table, testing::Not(testing::HasSubstr("kv_cache")));
}

}  // namespace
}  // namespace ndmesh::measure
