#include "ndmesh/plan/measured/csv.h"

#include <gmock/gmock.h>

#include "ndmesh/base/error.h"
#include "ndmesh/base/hash.h"

namespace ndmesh::plan {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string refusal(std::string_view text, const CsvLimits& limits = {}) {
  try {
    parse_csv(text, "t.csv", limits);
  } catch (const RequestError& error) {
    return error.what();
  }
  return "read";
}

TEST(Csv, CellsQuotesAndLines) {
  const CsvTable table = parse_csv(
      "\xef\xbb\xbf"
      "a,\"b\"\r\n1,\"x,\"\"y\"\"\n z\"\n\n,\r\n",
      "t.csv");
  EXPECT_THAT(table.columns, ElementsAre("a", "b"));
  ASSERT_EQ(table.records.size(), 2U);
  EXPECT_THAT(table.records[0].cells, ElementsAre("1", "x,\"y\"\n z"));
  EXPECT_EQ(table.records[0].line, 2);
  EXPECT_THAT(table.records[1].cells, ElementsAre("", ""));
  EXPECT_EQ(table.records[1].line, 5);
  EXPECT_EQ(table.find("b"), 1U);
  EXPECT_FALSE(table.find("c"));
}

TEST(Csv, HeaderAlone) {
  EXPECT_TRUE(parse_csv("a,b", "t.csv").records.empty());
  EXPECT_TRUE(parse_csv("a,b\n\n\n", "t.csv").records.empty());
}

TEST(Csv, EveryDefectIsRefusedWithItsLine) {
  EXPECT_THAT(refusal(""), HasSubstr("t.csv: line 1 is missing: the table has no header"));
  EXPECT_THAT(refusal("a,b\n1\n"), HasSubstr("line 2 has 1 cells; the header names 2 columns"));
  EXPECT_THAT(refusal("a,b\n1,2\n1,2,3\n"), HasSubstr("line 3 has 3 cells"));
  EXPECT_THAT(refusal("a,b\n1,\"2\n3,4\n"), HasSubstr("line 2 opens a quote that is never closed"));
  EXPECT_THAT(refusal("a,b\n1,2\"\n"), HasSubstr("line 2 has a quote inside a cell"));
  EXPECT_THAT(refusal("a,b\n\"1\"x,2\n"), HasSubstr("line 2 goes on behind a closing quote"));
  EXPECT_THAT(refusal(std::string_view("a,b\n1,\0\n", 8)), HasSubstr("line 2 holds a zero byte"));
  EXPECT_THAT(refusal("a,,b\n"), HasSubstr("line 1 has a column without a name"));
  EXPECT_THAT(refusal("a,b,a\n"), HasSubstr("line 1 names the column \"a\" twice"));
  EXPECT_THAT(refusal("a,b\n", {.columns = 1}), HasSubstr("line 1 has more than 1 cells"));
  EXPECT_THAT(refusal("a\n1\n2\n", {.records = 1}), HasSubstr("line 3 is one too many: at most 1 rows"));
  EXPECT_THAT(refusal("a\nxyz\n", {.cell_bytes = 2}), HasSubstr("line 2 has a cell of more than 2 bytes"));
}

TEST(Csv, AnyBytesAreReadOrRefused) {
  constexpr std::string_view alphabet = "a,\"\n\r1 \xff";
  for (std::uint64_t seed = 0; seed < 20'000; ++seed) {
    std::string text;
    for (std::uint64_t i = 0; i < random_at(seed, 0) % 24; ++i) {
      text += alphabet[random_at(seed, i + 1) % alphabet.size()];
    }
    try {
      const CsvTable table = parse_csv(text, "t.csv");
      for (const CsvRecord& record : table.records) ASSERT_EQ(record.cells.size(), table.columns.size());
    } catch (const RequestError& error) {
      EXPECT_THAT(error.what(), HasSubstr("t.csv: line "));
    }
  }
}

}  // namespace
}  // namespace ndmesh::plan
