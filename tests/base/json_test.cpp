#include "ndmesh/base/json.h"

#include <gmock/gmock.h>

#include "ndmesh/base/error.h"

namespace ndmesh {
namespace {

using testing::HasSubstr;

std::string problem_of(const std::string& text, const JsonLimits& limits = {}) {
  try {
    parse_json(text, "a.json", limits);
  } catch (const RequestError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Json, ReadsOneDocument) {
  const auto value = parse_json(R"({"a": [1, 2.5, null], "b": {"a": "\u00e9"}})", "a.json");
  EXPECT_EQ(value["a"][0], 1);
  EXPECT_EQ(value["a"][1], 2.5);
  EXPECT_EQ(value["b"]["a"], "\xc3\xa9");
}

TEST(Json, SaysWhereItBroke) {
  EXPECT_THAT(problem_of("{\"a\": 1,\n \"b\": tru}"),
              HasSubstr("a.json, line 2, column 10: is not valid JSON"));
}

TEST(Json, RefusesWhatIsNoDocument) {
  for (const char* text :
       {"", " ", "{", "[1, 2", "{} {}", "{} x", "NaN", "[Infinity]", "[-Infinity]", "{'a': 1}", "[1,]",
        "\"\xff\xfe\"", "[1e999]", "\"unfinished", "[01]", "\xef\xbb", "[\"\x01\"]"}) {
    EXPECT_THAT(problem_of(text), HasSubstr("is not valid JSON")) << text;
  }
}

TEST(Json, RefusesKeysGivenTwice) {
  EXPECT_THAT(problem_of(R"({"a": 1, "b": {"a": 2}, "a": 3})"), HasSubstr("has the key \"a\" twice"));
  EXPECT_EQ(problem_of(R"({"a": 1, "b": {"a": 2}, "c": [{"a": 1}, {"a": 2}]})"), "accepted");
}

TEST(Json, LimitsDepth) {
  EXPECT_EQ(problem_of(std::string(64, '[') + std::string(64, ']')), "accepted");
  EXPECT_THAT(problem_of(std::string(65, '[') + std::string(65, ']')),
              HasSubstr("nested deeper than 64 levels"));
  EXPECT_EQ(problem_of(std::string(65, '[') + std::string(65, ']'), {.depth = 100}), "accepted");
  EXPECT_THAT(problem_of(std::string(1'000'000, '[')), HasSubstr("nested deeper"));
  std::string objects;
  for (int i = 0; i < 1000; ++i) {
    objects += R"({"a":)";
  }
  EXPECT_THAT(problem_of(objects), HasSubstr("nested deeper"));
}

TEST(Json, LimitsLength) {
  EXPECT_THAT(problem_of("[1, 2, 3]", {.bytes = 8}), HasSubstr("has 9 bytes of JSON; at most 8"));
}

TEST(Json, MessagesHoldNoControlBytes) {
  const std::string problem = problem_of("[\"\x1b[31m\"]");
  EXPECT_THAT(problem, HasSubstr("is not valid JSON"));
  EXPECT_EQ(problem.find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace ndmesh
