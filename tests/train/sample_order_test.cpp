#include "ndmesh/train/sample_order.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

#include "ndmesh/base/error.h"

namespace ndmesh::train {
namespace {

using testing::HasSubstr;

std::vector<std::uint64_t> all_of(std::uint64_t size, std::uint64_t seed, std::uint64_t epoch) {
  const Permutation permutation(size, seed, epoch);
  std::vector<std::uint64_t> images(size);
  for (std::uint64_t x = 0; x < size; ++x) {
    images[x] = permutation(x);
  }
  return images;
}

std::vector<std::int64_t> starts(const SampleOrder& order, std::int64_t from, std::int64_t to) {
  std::vector<std::int64_t> list;
  for (std::int64_t n = from; n < to; ++n) {
    list.push_back(order.start_of(n));
  }
  return list;
}

TEST(Permutation, IsABijectionForEverySize) {
  for (std::uint64_t size = 1; size <= 300; ++size) {
    std::vector<std::uint64_t> images = all_of(size, 7, size);
    std::sort(images.begin(), images.end());
    for (std::uint64_t x = 0; x < size; ++x) {
      ASSERT_EQ(images[x], x) << "size " << size;
    }
  }
}

TEST(Permutation, StaysInsideHugeSizes) {
  const std::uint64_t size = (std::uint64_t{1} << 62) + 12345;
  const Permutation permutation(size, 1, 0);
  for (std::uint64_t i = 0; i < 1000; ++i) {
    EXPECT_LT(permutation(size - 1 - i), size);
  }
}

TEST(Permutation, DependsOnSeedAndEpoch) {
  EXPECT_EQ(all_of(1000, 1, 0), all_of(1000, 1, 0));
  EXPECT_NE(all_of(1000, 1, 0), all_of(1000, 2, 0));
  EXPECT_NE(all_of(1000, 1, 0), all_of(1000, 1, 1));
  // (seed, epoch) must not collapse into their sum.
  EXPECT_NE(all_of(1000, 1, 2), all_of(1000, 2, 1));
}

// Every permutation of four things equally often: 24 cells, 23 degrees of freedom; chi square above 49.7 has
// p = 0.001.
TEST(Permutation, AllOrdersAreEquallyLikely) {
  constexpr int trials = 4800;
  std::map<std::vector<std::uint64_t>, int> count;
  for (std::uint64_t seed = 0; seed < trials; ++seed) {
    ++count[all_of(4, seed, 3)];
  }
  ASSERT_EQ(count.size(), 24u);
  double chi_square = 0;
  for (const auto& [order, seen] : count) {
    chi_square += (seen - 200.0) * (seen - 200.0) / 200.0;
  }
  EXPECT_LT(chi_square, 49.7);
}

// A random permutation of n things keeps one in place and n/2 pairs of neighbours in order, give or take a
// few deviations.
TEST(Permutation, LooksRandomInFixedPointsAndAscents) {
  constexpr std::uint64_t size = 10000;
  std::int64_t fixed = 0;
  std::int64_t ascents = 0;
  for (std::uint64_t epoch = 0; epoch < 10; ++epoch) {
    const auto images = all_of(size, 5, epoch);
    for (std::uint64_t x = 0; x < size; ++x) {
      fixed += images[x] == x;
      ascents += x > 0 && images[x] > images[x - 1];
    }
  }
  EXPECT_NEAR(fixed, 10, 4 * 3.2);        // Poisson of mean 10
  EXPECT_NEAR(ascents, 49995, 4 * 91.3);  // variance of ascents is (n + 1) / 12
}

TEST(SampleOrder, InFileOrderFollowsTheStatedRule) {
  const SampleOrder order(1003, 16, false, 9);
  for (const std::int64_t n : {0, 1, 60, 61, 62, 1000}) {
    EXPECT_EQ(order.start_of(n), (n * 16) % 986);
  }
}

TEST(SampleOrder, InFileOrderHolds64Bits) {
  // n * seq_len = 2^62 * 4096 mod (2^50 - 4097), by Python's integers.
  const SampleOrder order(std::int64_t{1} << 50, 4096, false, 0);
  EXPECT_EQ(order.start_of(std::int64_t{1} << 62), 68736253952);
}

TEST(SampleOrder, ShuffledEpochVisitsEveryWindowOnce) {
  const SampleOrder order(97 * 8 + 5, 8, true, 3);
  ASSERT_EQ(order.samples_per_epoch(), 97);
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<std::int64_t> list = starts(order, epoch * 97, (epoch + 1) * 97);
    std::sort(list.begin(), list.end());
    for (std::int64_t window = 0; window < 97; ++window) {
      EXPECT_EQ(list[window], window * 8);
    }
  }
  EXPECT_NE(starts(order, 0, 97), starts(order, 97, 194));
}

TEST(SampleOrder, LastWindowKeepsItsTargets) {
  const SampleOrder exact(33, 8, true, 1);  // windows begin at 0, 8, 16, 24 and read 9 tokens
  EXPECT_EQ(exact.samples_per_epoch(), 4);
  const SampleOrder one_less(32, 8, true, 1);
  EXPECT_EQ(one_less.samples_per_epoch(), 3);
}

// 96 samples, 12 steps an epoch, stopped after steps 3, 5 and 14 and resumed by a new object each time: the
// same 192 samples, each twice.
TEST(SampleOrder, ResumesFromTheCountOfSamples) {
  const auto fresh = [] { return SampleOrder(96 * 4 + 1, 4, true, 11); };
  const std::vector<std::int64_t> whole = starts(fresh(), 0, 24 * 8);
  std::vector<std::int64_t> pieces;
  std::int64_t from = 0;
  for (const std::int64_t step : {3, 5, 14, 24}) {
    const std::vector<std::int64_t> piece = starts(fresh(), from * 8, step * 8);
    pieces.insert(pieces.end(), piece.begin(), piece.end());
    from = step;
  }
  EXPECT_EQ(pieces, whole);
  for (std::int64_t window = 0; window < 96; ++window) {
    EXPECT_EQ(std::count(whole.begin(), whole.end(), window * 4), 2);
  }
}

// Five windows, steps of four samples: every step is full, the epoch's border lies inside a step, nothing is
// repeated early.
TEST(SampleOrder, GoesOnOverTheEpochsEndWithoutGaps) {
  const SampleOrder order(5 * 4 + 1, 4, true, 2);
  for (std::int64_t epoch = 0; epoch < 4; ++epoch) {
    std::vector<std::int64_t> list = starts(order, epoch * 5, epoch * 5 + 5);
    EXPECT_THAT(list, testing::UnorderedElementsAre(0, 4, 8, 12, 16));
  }
}

std::string refusal(std::int64_t tokens, std::int64_t seq_len, bool shuffle) {
  try {
    const SampleOrder order(tokens, seq_len, shuffle, 0);
  } catch (const RequestError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(SampleOrder, RefusesTooFewTokens) {
  EXPECT_EQ(refusal(10, 8, false), "accepted");
  EXPECT_THAT(refusal(9, 8, false), HasSubstr("batch.seq_len to at most 7"));
  EXPECT_EQ(refusal(9, 8, true), "accepted");
  EXPECT_THAT(refusal(8, 8, true), HasSubstr("batch.seq_len to at most 7"));
  EXPECT_THAT(refusal(100, INT64_MAX, true), HasSubstr("100 tokens are too few"));
  EXPECT_THAT(refusal(100, 0, true), HasSubstr("batch.seq_len is 0"));
}

}  // namespace
}  // namespace ndmesh::train
