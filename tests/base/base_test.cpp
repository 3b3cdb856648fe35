#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "ndmesh/base/dtype.h"
#include "ndmesh/base/error.h"
#include "ndmesh/base/file.h"
#include "ndmesh/base/hash.h"
#include "ndmesh/base/log.h"
#include "ndmesh/base/memory_category.h"
#include "ndmesh/base/nearest.h"
#include "ndmesh/base/text.h"
#include "ndmesh/base/units.h"

namespace ndmesh {
namespace {

using testing::HasSubstr;

TEST(DTypes, HaveNamesAndBytes) {
  EXPECT_EQ(bytes_of(DType::float64), 8);
  EXPECT_EQ(bytes_of(DType::bfloat16), 2);
  EXPECT_EQ(bytes_of(DType::boolean), 1);
  for (const DType dtype : {DType::float64, DType::float32, DType::bfloat16, DType::float16, DType::int64,
                            DType::int32, DType::int16, DType::int8, DType::uint8, DType::boolean}) {
    EXPECT_EQ(dtype_from_name(name_of(dtype)), dtype);
  }
  EXPECT_EQ(dtype_from_name("torch.bfloat16"), DType::bfloat16);
  EXPECT_EQ(dtype_from_name("bf16"), std::nullopt);
  EXPECT_EQ(dtype_from_name("torch."), std::nullopt);
}

TEST(Errors, ListEveryProblem) {
  Problems problems;
  EXPECT_NO_THROW(problems.raise());
  problems.add("one");
  problems.add_all({"two", "three"});
  try {
    problems.raise();
    FAIL();
  } catch (const RequestError& error) {
    EXPECT_STREQ(error.what(), "one\ntwo\nthree");
    EXPECT_EQ(error.problems().size(), 3U);
  }
}

TEST(Nearest, FindsTypingErrors) {
  const std::vector<std::string> names = {"tp_size", "pp_size", "dp_shard_size", "steps"};
  EXPECT_EQ(nearest("dp_shrad_size", names), "dp_shard_size");
  EXPECT_EQ(nearest("stesp", names), "steps");
  EXPECT_EQ(nearest("tp_sise", names), "tp_size");
  EXPECT_EQ(nearest("entirely_else", names), "");
  EXPECT_EQ(nearest("", names), "");
  EXPECT_EQ(nearest(std::string(100000, 'a'), names), "");
  EXPECT_EQ(did_you_mean("stps", names), "; did you mean steps?");
  EXPECT_EQ(did_you_mean("nothing alike", names), "");
}

TEST(Units, NeverMixPowersOfTwoAndTen) {
  EXPECT_EQ(binary_bytes(16060522496), "14.96 GiB");
  EXPECT_EQ(decimal_bytes(16060522496), "16.06 GB");
  EXPECT_EQ(binary_bytes(1023), "1023 B");
  EXPECT_EQ(binary_bytes(1536), "1.50 KiB");
  EXPECT_EQ(decimal_bytes(1000), "1.00 kB");
  const std::int64_t h100 = std::int64_t{81559} << 20,
                     a100 = std::int64_t{81920} << 20;  // devices of "80 GB"
  EXPECT_EQ(binary_bytes(h100), "79.65 GiB");
  EXPECT_EQ(decimal_bytes(h100), "85.52 GB");
  EXPECT_EQ(binary_bytes(a100), "80.00 GiB");
  EXPECT_EQ(decimal_bytes(a100), "85.90 GB");
}

TEST(Units, ShowCountsAndDurations) {
  EXPECT_EQ(grouped(8030261248), "8,030,261,248");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1000), "1,000");
  EXPECT_EQ(grouped(-123456), "-123,456");
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(scaled(39642464256.0), "39.64 G");
  EXPECT_EQ(scaled(812), "812");
  EXPECT_EQ(duration(0.00085), "850 us");
  EXPECT_EQ(duration(0.0123), "12.3 ms");
  EXPECT_EQ(duration(4.2), "4.20 s");
  EXPECT_EQ(duration(185), "3 min 05 s");
  EXPECT_EQ(duration(7380), "2 h 03 min");
}

// Reference values of XXH64: the project's own test vectors for the empty input and "abc"-like texts.
TEST(Hash, IsXxh64) {
  EXPECT_EQ(seed_for(0, ""), 0xEF46DB3751D8E999ULL);
  EXPECT_EQ(seed_for(0, "abc"), 0x44BC2CF5AD770999ULL);
}

TEST(Hash, DiffersByEveryInput) {
  std::set<std::uint64_t> values;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    for (std::uint64_t counter = 0; counter < 1000; ++counter) {
      values.insert(random_at(seed, counter));
    }
  }
  EXPECT_EQ(values.size(), 10000U);
  EXPECT_NE(seed_for(1, "a"), seed_for(2, "a"));
  EXPECT_NE(seed_for(1, "a"), seed_for(1, "b"));
}

TEST(Text, ShowsHostileValuesSafely) {
  EXPECT_EQ(shown("a b"), "\"a b\"");
  EXPECT_EQ(shown("\x1b[31m\n\xff"), "\"\\x1b[31m\\x0a\\xff\"");
  EXPECT_EQ(shown(std::string(100, 'x')), "\"" + std::string(60, 'x') + "...\"");
}

TEST(Text, SplitsAndJoins) {
  EXPECT_EQ(split("a,,b", ','), (std::vector<std::string>{"a", "", "b"}));
  EXPECT_EQ(split("", ','), (std::vector<std::string>{""}));
  EXPECT_EQ(join({"a", "b"}), "a, b");
  EXPECT_EQ(join({}), "");
}

TEST(Files, AreReadWholeOrRefused) {
  const std::filesystem::path path = testing::TempDir() + "ndmesh_file_test";
  std::ofstream(path, std::ios::binary) << std::string("a\0b\n", 4);
  EXPECT_EQ(read_file(path, 4), std::string("a\0b\n", 4));
  const auto problem_of = [](const std::filesystem::path& file, std::int64_t most) -> std::string {
    try {
      read_file(file, most);
    } catch (const RequestError& error) {
      return error.what();
    }
    return "read";
  };
  EXPECT_THAT(problem_of(path, 3), HasSubstr("has 4 bytes; at most 3"));
  EXPECT_THAT(problem_of(testing::TempDir(), 100), HasSubstr("is not a regular file"));
  EXPECT_THAT(problem_of("/dev/zero", 100), HasSubstr("is not a regular file"));
  EXPECT_THAT(problem_of(path / "below", 100), HasSubstr("cannot be read"));
  EXPECT_THAT(problem_of("no/such/file", 100), HasSubstr("cannot be read"));
  EXPECT_THAT(problem_of(std::string(5000, 'a'), 100), HasSubstr("cannot be read"));
  std::filesystem::remove(path);
}

TEST(Log, WritesToStandardErrorByLevel) {
  testing::internal::CaptureStderr();
  log_info("hello");
  log_warning("beware");
  set_log_level(LogLevel::error);
  log_info("hidden");
  log_warning("hidden");
  log_error("broken");
  set_log_level(LogLevel::info);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "ndmesh: hello\nndmesh: warning: beware\nndmesh: error: broken\n");
}

TEST(Memory, ScopesNestAndEnd) {
  EXPECT_EQ(current_memory_category(), MemoryCategory::workspace);
  {
    const MemoryScope outer(MemoryCategory::parameters);
    {
      const MemoryScope inner(MemoryCategory::logits);
      EXPECT_EQ(current_memory_category(), MemoryCategory::logits);
    }
    EXPECT_EQ(current_memory_category(), MemoryCategory::parameters);
  }
  EXPECT_EQ(current_memory_category(), MemoryCategory::workspace);
  MemoryBytes bytes;
  bytes[MemoryCategory::parameters] = 3;
  bytes[MemoryCategory::headroom] = 4;
  EXPECT_EQ(bytes.total(), 7);
}

}  // namespace
}  // namespace ndmesh
