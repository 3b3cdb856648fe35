#include "ndmesh/plan/measured/accuracy.h"

#include <gmock/gmock.h>

#include <set>

#include "ndmesh/base/error.h"
#include "ndmesh/plan/measured/calibration.h"
#include "ndmesh/plan/measured/limits.h"

namespace ndmesh::plan {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// A row of a ranking group with its time and what was predicted.
struct Timed {
  std::string ranking;
  double measured;
  double uncalibrated;
  double calibrated;
  bool calibrates = false;
};

struct Table {
  std::vector<Measurement> list;
  std::vector<Prediction> predictions;

  void add(const Timed& timed) {
    Measurement row;
    row.id = std::to_string(list.size());
    row.group = row.cluster = timed.ranking.substr(0, 1);
    row.ranking = timed.ranking;
    row.seconds = timed.measured;
    list.push_back(row);
    Prediction prediction;
    prediction.uncalibrated = timed.uncalibrated;
    prediction.calibrated = timed.calibrated;
    prediction.calibrates = timed.calibrates;
    predictions.push_back(prediction);
  }
};

Table table_of(const std::vector<Timed>& rows) {
  Table table;
  for (const Timed& row : rows) table.add(row);
  return table;
}

TEST(Accuracy, ErrorsInPercentWithoutFittedRows) {
  const Table table = table_of({{"a", 10, 12, 11}, {"a", 10, 6, 9}, {"b", 10, 100, 100, true}});
  const Accuracy accuracy = overall_accuracy(table.list, table.predictions);
  EXPECT_EQ(accuracy.rows, 3);
  EXPECT_EQ(accuracy.time_rows, 2);
  EXPECT_EQ(accuracy.calibration_rows, 1);
  EXPECT_NEAR(*accuracy.mape_uncalibrated, 30, 1e-12);
  EXPECT_NEAR(*accuracy.bias_uncalibrated, -10, 1e-12);
  EXPECT_NEAR(*accuracy.mape_calibrated, 10, 1e-12);
  EXPECT_NEAR(*accuracy.bias_calibrated, 0, 1e-12);
  EXPECT_FALSE(accuracy.memory_mape);
  EXPECT_FALSE(accuracy.tau);
  const std::vector<Accuracy> groups =
      accuracy_by(table.list, table.predictions, [](const Measurement& row) { return row.group; });
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_EQ(groups[1].name, "b");
  EXPECT_FALSE(groups[1].mape_calibrated);
}

TEST(Accuracy, RanksWithinGroupsByRows) {
  // a: order right by calibrated times; b: reversed, its pick takes 13 where 10 was to be had; c: too few.
  const Table table = table_of({{"a", 1, 3, 10},
                                {"a", 2, 2, 20},
                                {"a", 3, 1, 30},
                                {"b", 10, 1, 4},
                                {"b", 11, 2, 3},
                                {"b", 12, 3, 2},
                                {"b", 13, 4, 1},
                                {"c", 5, 1, 1},
                                {"c", 6, 2, 2},
                                {"c", 7, 3, 3, true}});
  const Accuracy accuracy = overall_accuracy(table.list, table.predictions);
  EXPECT_EQ(accuracy.ranking_groups, 2);
  EXPECT_EQ(accuracy.ranked_rows, 7);
  EXPECT_NEAR(accuracy.tau->value, (3 * 1.0 + 4 * -1.0) / 7, 1e-12);
  EXPECT_NEAR(accuracy.regret->value, (3 * 0.0 + 4 * 30.0) / 7, 1e-12);
  EXPECT_NEAR(accuracy.tau_uncalibrated->value, (3 * -1.0 + 4 * 1.0) / 7, 1e-12);
  EXPECT_NEAR(accuracy.regret_uncalibrated->value, (3 * 200.0 + 4 * 0.0) / 7, 1e-12);
  EXPECT_LE(accuracy.tau->low, accuracy.tau->value);
  EXPECT_GE(accuracy.tau->high, accuracy.tau->value);

  const std::vector<RankedGroup> groups = ranked_groups(table.list, table.predictions);
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_EQ(groups[0].ranking, "b");
  EXPECT_EQ(groups[0].picked, "6");
  EXPECT_EQ(groups[0].best, "3");
  EXPECT_NEAR(groups[0].regret, 30, 1e-12);
}

TEST(Accuracy, RepeatedLayoutsCountOnce) {
  // Two runs of one layout at 8 and 12: their mean, 10, is what the pick is worth.
  Table table = table_of({{"a", 8, 5, 5}, {"a", 12, 5, 5}, {"a", 11, 6, 6}});
  const Accuracy one = overall_accuracy(table.list, table.predictions);
  EXPECT_NEAR(one.regret->value, 0, 1e-12);
  EXPECT_NEAR(one.tau->value, 1, 1e-12);
  // Of another mesh they are two layouts, however alike the prediction.
  table.list[1].candidate.mesh.tp = 2;
  EXPECT_NEAR(overall_accuracy(table.list, table.predictions).regret->value, 25, 1e-12);
  // One layout alone ranks nothing.
  const Table same = table_of({{"a", 8, 5, 5}, {"a", 12, 5, 5}, {"a", 11, 5, 5}});
  EXPECT_EQ(overall_accuracy(same.list, same.predictions).ranking_groups, 0);
}

TEST(Accuracy, MemoryAndVerdicts) {
  Table table = table_of({{"a", 1, 1, 1}, {"a", 1, 1, 1}, {"a", 1, 1, 1}, {"a", 1, 1, 1}});
  const std::vector<bool> ran = {true, true, false, false};
  const std::vector<bool> said = {true, false, true, false};
  for (std::size_t i = 0; i < ran.size(); ++i) {
    table.list[i].fits = ran[i];
    table.predictions[i].fits = said[i];
  }
  table.list[0].memory = MeasuredMemory{.bytes = 100};
  table.predictions[0].bytes = 90;
  table.list[1].memory = MeasuredMemory{.bytes = 100};
  table.predictions[1].bytes = 104;
  const Accuracy accuracy = overall_accuracy(table.list, table.predictions);
  EXPECT_EQ(accuracy.verdict_rows, 4);
  EXPECT_EQ(accuracy.verdict_right, 2);
  EXPECT_EQ(accuracy.wrongly_fits, 1);
  EXPECT_EQ(accuracy.wrongly_not, 1);
  EXPECT_NEAR(*accuracy.memory_mape, 7, 1e-12);
  EXPECT_NEAR(*accuracy.memory_bias, -3, 1e-12);
}

std::vector<Measurement> cluster_of(std::size_t rows) {
  std::vector<Measurement> list(rows);
  for (std::size_t i = 0; i < rows; ++i) {
    list[i].seconds = 1;
    list[i].problem.model.hidden = list[i].problem.model.layers = 1024;
    list[i].problem.seq_len = 2048;
    list[i].problem.global_batch = 64;
    list[i].candidate.micro = 1 << (i % 4);
    list[i].candidate.mesh.tp = 1 << (i / 4 % 4);
  }
  return list;
}

std::vector<std::size_t> all_of(const std::vector<Measurement>& list) {
  std::vector<std::size_t> rows;
  for (std::size_t i = 0; i < list.size(); ++i) rows.push_back(i);
  return rows;
}

TEST(CalibrationRows, HalfAtMostTwelve) {
  const std::vector<std::pair<std::size_t, std::size_t>> expected = {{0, 0},  {2, 0},  {3, 0},   {4, 2},
                                                                     {11, 5}, {16, 8}, {200, 12}};
  for (const auto& [rows, chosen] : expected) {
    const auto list = cluster_of(rows);
    const std::vector<std::size_t> found = calibration_rows(list, all_of(list));
    EXPECT_EQ(found.size(), chosen) << rows;
    EXPECT_EQ(std::set<std::size_t>(found.begin(), found.end()).size(), chosen) << rows;
  }
}

TEST(CalibrationRows, BlindToWhatWasMeasured) {
  auto list = cluster_of(16);
  const std::vector<std::size_t> chosen = calibration_rows(list, all_of(list));
  for (std::size_t i = 0; i < list.size(); ++i) list[i].seconds = 1.0 + static_cast<double>(i * i % 7);
  EXPECT_EQ(calibration_rows(list, all_of(list)), chosen);
}

TEST(CalibrationRows, StandForTheOthers) {
  // Three kinds of rows, told apart by tp, in runs of different length: one of each is chosen first.
  auto list = cluster_of(7);
  for (std::size_t i = 0; i < list.size(); ++i) {
    list[i].candidate.micro = 1;
    list[i].candidate.mesh.tp = i < 3 ? 1 : i < 5 ? 8 : 64;
  }
  EXPECT_THAT(calibration_rows(list, all_of(list)), ElementsAre(0, 3, 5));
}

TEST(Limits, ReadAndHeld) {
  Accuracy all;
  all.memory_mape = 1.5;
  all.verdict_rows = 100;
  all.verdict_right = 97;
  all.tau = WeightedMean{0.8, 0.7, 0.9};
  Accuracy group = all;
  group.name = "g:h";
  group.memory_mape = 0.5;
  const auto broken = [&](const std::string& text) {
    const std::vector<std::string> found = broken_limits({parse_limit(text)}, all, {group});
    return found.empty() ? "" : found.front();
  };
  EXPECT_EQ(broken("memory_mape=1.5"), "");
  EXPECT_EQ(broken("memory_mape=1"), "memory_mape is 1.5; limit: at most 1");
  EXPECT_EQ(broken("g:h:memory_mape=1"), "");
  EXPECT_EQ(broken("verdict=97"), "");
  EXPECT_EQ(broken("verdict=97.5"), "verdict is 97; limit: at least 97.5");
  EXPECT_EQ(broken("tau=0.9"), "tau is 0.8; limit: at least 0.9");
  EXPECT_EQ(broken("g:h:regret=5"), "g:h:regret is not measured by any row; limit: at most 5");
}

std::string limit_refusal(const std::string& text) {
  try {
    broken_limits({parse_limit(text)}, {}, {});
  } catch (const RequestError& error) {
    return error.what();
  }
  return "read";
}

TEST(Limits, Refusals) {
  EXPECT_THAT(limit_refusal("memory_map=1"), HasSubstr("did you mean memory_mape?"));
  EXPECT_THAT(limit_refusal("tau"), HasSubstr("--limit tau is \"\"; allowed: a number"));
  EXPECT_THAT(limit_refusal("tau=nan"), HasSubstr("allowed: a number"));
  EXPECT_THAT(limit_refusal("tau=1x"), HasSubstr("allowed: a number"));
  EXPECT_THAT(limit_refusal("nobody:tau=1"), HasSubstr("--limit names the group \"nobody\""));
}

}  // namespace
}  // namespace ndmesh::plan
