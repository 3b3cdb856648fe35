#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "ndmesh/base/error.h"
#include "ndmesh/model/config.h"

namespace ndmesh::model {
namespace {

TEST(Estimate, HasExactlyTheSize) {
  const std::pair<const char*, std::int64_t> sizes[] = {
      {"70B", 70'000'000'000},    {"1.5b", 1'500'000'000},
      {"405e9", 405'000'000'000}, {"1M", 1'000'000},
      {"28m", 28'000'000},        {"1.1B", 1'100'000'000},
      {"8b", 8'000'000'000},      {"2.5T", 2'500'000'000'000},
      {"175B", 175'000'000'000},  {"1000T", 1'000'000'000'000'000}};
  for (const auto& [text, count] : sizes) {
    EXPECT_TRUE(is_size(text)) << text;
    const ModelSpec spec = estimate(text);
    EXPECT_EQ(spec.parameter_count(), count) << text;
    EXPECT_TRUE(spec.estimated());
    EXPECT_LT(static_cast<double>(spec.unspecified_parameters), 0.02 * static_cast<double>(count)) << text;
    EXPECT_EQ(spec.heads % spec.kv_heads, 0) << text;
  }
  EXPECT_EQ(estimate("70B").parameter_count() * bytes_of(DType::bfloat16), 140'000'000'000);
}

// Every size from 1M to 10T: the shape stays near those of real models (Llama 3: 8B, 70B, 405B).
TEST(Estimate, ShapesAreUsual) {
  for (double size = 1e6; size < 1e13; size *= 1.37) {
    const ModelSpec spec = estimate(std::to_string(size));
    EXPECT_EQ(spec.parameter_count(), std::llround(size));
    EXPECT_GE(spec.ffn, spec.hidden);
    EXPECT_LE(spec.ffn, 8 * spec.hidden);
    const double width = static_cast<double>(spec.hidden) / static_cast<double>(spec.layers);
    EXPECT_GT(width, 112 / 2.5) << size;
    EXPECT_LT(width, 112 * 2.5) << size;
  }
  EXPECT_EQ(estimate("8B").hidden, 4096);
  EXPECT_EQ(estimate("8B").layers, 32);
  EXPECT_EQ(estimate("70B").hidden, 8192);
  EXPECT_EQ(estimate("70B").layers, 80);
  EXPECT_EQ(estimate("405B").hidden, 16384);
  EXPECT_NEAR(static_cast<double>(estimate("405B").layers), 126, 6);
}

TEST(Estimate, RefusesWhatIsNoSize) {
  for (const char* text : {"", "B", "70X", "70 B", "seventy", "nanB", "infB", "7e999", "0x10B", "70BB"}) {
    EXPECT_FALSE(is_size(text)) << text;
    EXPECT_THROW(estimate(text), RequestError) << text;
  }
  for (const char* text : {"-70B", "0B", "10", "0.5M", "1001T", "1e300"}) {
    EXPECT_TRUE(is_size(text)) << text;
    EXPECT_THROW(estimate(text), RequestError) << text;
  }
}

}  // namespace
}  // namespace ndmesh::model
