#include "ndmesh/train/safetensors_header.h"

#include <gmock/gmock.h>

#include <random>

#include "ndmesh/base/error.h"
#include "train/hostile_file.h"
#include "train/scratch_folder.h"

namespace ndmesh::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;

SafetensorsHeader parse(const std::string& bytes) {
  // A heap block of exactly the file's size: the address sanitizer sees every byte read outside it.
  const std::vector<char> exact(bytes.begin(), bytes.end());
  return read_safetensors_header(std::as_bytes(std::span(exact)), "F.safetensors");
}

std::string refusal(const std::string& bytes) {
  try {
    parse(bytes);
  } catch (const RequestError& error) {
    return error.what();
  }
  return "accepted";
}

std::string refusal(const std::string& header, std::size_t data_bytes) {
  return refusal(safetensors_bytes(header, data_bytes));
}

std::string with_length(std::uint64_t length, std::size_t rest) {
  std::string text(reinterpret_cast<const char*>(&length), 8);
  return text + std::string(rest, '{');
}

// The thirteen files of a collection of crafted files that crashed other loaders.
TEST(SafetensorsHeader, RefusesMalformedFiles) {
  EXPECT_THAT(refusal(with_length(1'000'000'000'000'000'000, 92)),
              HasSubstr("over the limit of 100000000 bytes"));
  EXPECT_THAT(refusal(with_length(100'000'001, 92)), HasSubstr("header length 100000001 is over the limit"));
  EXPECT_THAT(refusal("12345"), HasSubstr("5 bytes are too few"));
  EXPECT_THAT(
      refusal(R"({"a":{"dtype":"F32","shape":[1000,1000],"data_offsets":[0,4]}})", 4),
      AllOf(HasSubstr("F.safetensors: tensor \"a\""), HasSubstr("span 4 bytes"), HasSubstr("take 4000000")));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8),
              HasSubstr("end before they begin"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 4),
              HasSubstr("past the 4 bytes of data"));
  EXPECT_THAT(refusal(R"({"k":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},)"
                      R"("v":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})",
                      16),
              AllOf(HasSubstr("tensor \"v\""), HasSubstr("overlap")));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                      R"("b":{"dtype":"F32","shape":[2],"data_offsets":[12,20]}})",
                      20),
              AllOf(HasSubstr("tensor \"b\" begins at byte 12"), HasSubstr("where 8 is expected")));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 12),
              HasSubstr("the last 4 belong to no tensor"));
  EXPECT_THAT(refusal("[]", 0), HasSubstr("not a JSON object"));
  EXPECT_THAT(refusal(R"( {"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8),
              HasSubstr("not a JSON object"));
}

TEST(SafetensorsHeader, AcceptsTheControls) {
  const std::string control = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  EXPECT_EQ(safetensors_bytes(control, 8).size(), 70u);
  EXPECT_EQ(parse(safetensors_bytes(control, 8)).tensors.at("a").shape, std::vector<std::int64_t>{2});
  EXPECT_EQ(refusal(control + "   ", 8), "accepted");
  EXPECT_EQ(refusal(R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})", 0), "accepted");
  EXPECT_EQ(refusal(R"({"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})", 4), "accepted");
  EXPECT_EQ(refusal("{}", 0), "accepted");
}

TEST(SafetensorsHeader, RefusesHeadersThatMeanTwoThings) {
  EXPECT_THAT(
      refusal(
          R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
          1),
      HasSubstr("twice"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"U8","dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4),
              HasSubstr("twice"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"more":1}})", 1),
              HasSubstr("nothing else"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"U8","shape":[1]}})", 1), HasSubstr("has no data_offsets"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"U8","shape":[[1]],"data_offsets":[0,1]}})", 1), HasSubstr("deeper"));
  EXPECT_THAT(refusal(R"({"a":[1]})", 1), HasSubstr("must be an object"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}} x)", 1),
              HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal(R"({"a":)", 0), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal(""), HasSubstr("0 bytes are too few"));
  EXPECT_THAT(refusal(with_length(0, 0)), HasSubstr("not a JSON object"));
  EXPECT_THAT(refusal(with_length(10, 9)), HasSubstr("past the end of the file"));
  EXPECT_THAT(refusal(with_length(UINT64_MAX, 9)), HasSubstr("over the limit"));
}

TEST(SafetensorsHeader, RefusesNumbersThatAreNoSizes) {
  const auto shape = [](const std::string& numbers) {
    return refusal(R"({"a":{"dtype":"F32","shape":[)" + numbers + R"(],"data_offsets":[0,8]}})", 8);
  };
  EXPECT_THAT(shape("-2"), HasSubstr("whole numbers from 0"));
  EXPECT_THAT(shape("2.0"), HasSubstr("whole numbers from 0"));
  EXPECT_THAT(shape("\"2\""), HasSubstr("whole numbers from 0"));
  EXPECT_THAT(shape("1e0"), HasSubstr("whole numbers from 0"));
  EXPECT_THAT(shape("18446744073709551616"), HasSubstr("whole numbers from 0"));
  EXPECT_THAT(shape("9223372036854775808"), HasSubstr("over 2^63"));
  // 2^32 * 2^32 * 4 is 0 in 64 bits, and 2^62 * 2 * 4 too.
  EXPECT_THAT(shape("4294967296,4294967296"), HasSubstr("more than 2^63 bytes"));
  EXPECT_THAT(shape("4611686018427387904,2"), HasSubstr("more than 2^63 bytes"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[-8,0]}})", 8),
              HasSubstr("data_offsets must hold"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8,8]}})", 8),
              HasSubstr("two numbers as data_offsets"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":2,"data_offsets":[0,8]}})", 8),
              HasSubstr("a list as shape"));
}

TEST(SafetensorsHeader, NamesDtypesThatAreNotRead) {
  for (const std::string dtype : {"F8_E4M3", "F8_E5M2", "U16", "U32", "C64", "f32", ""}) {
    EXPECT_THAT(refusal(R"({"a":{"dtype":")" + dtype + R"(","shape":[1],"data_offsets":[0,1]}})", 1),
                HasSubstr("dtype \"" + dtype + "\" is not read; F64, F32, BF16, F16,"));
  }
}

TEST(SafetensorsHeader, MetadataIsTextsOnly) {
  EXPECT_EQ(parse(safetensors_bytes(R"({"__metadata__":{"format":"pt"}})", 0)).metadata.at("format"), "pt");
  EXPECT_THAT(refusal(R"({"__metadata__":{"step":1}})", 0), HasSubstr("\"step\", which is no text"));
  EXPECT_THAT(refusal(R"({"__metadata__":[]})", 0), HasSubstr("an object of texts"));
}

TEST(SafetensorsHeader, SaysAllThatIsWrong) {
  EXPECT_THAT(
      refusal(
          R"({"a":{"dtype":"F8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[2],"data_offsets":[0,1]}})",
          1),
      AllOf(HasSubstr("tensor \"a\" dtype"), HasSubstr("tensor \"b\" data_offsets")));
}

// Any change of any byte is read or refused; nothing else happens (the sanitizers watch).
TEST(SafetensorsHeader, SurvivesRandomDamage) {
  const std::string whole = contents(std::string(NDMESH_TEST_DATA) + "/safetensors/mixed.safetensors");
  ASSERT_EQ(refusal(whole), "accepted");
  std::mt19937 random(1);
  std::int64_t refused = 0;
  for (int trial = 0; trial < 20000; ++trial) {
    std::string damaged = whole;
    for (std::uint32_t changes = 1 + random() % 3; changes > 0; --changes) {
      damaged[random() % damaged.size()] = static_cast<char>(random());
    }
    if (random() % 4 == 0) {
      damaged.resize(random() % damaged.size());
    }
    refused += refusal(damaged) != "accepted";
  }
  EXPECT_GT(refused, 10000);
}

}  // namespace
}  // namespace ndmesh::train
