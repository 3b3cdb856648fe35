#include "ndmesh/train/sample_order.h"

#include <fmt/format.h>

#include <algorithm>

#include "ndmesh/base/error.h"
#include "ndmesh/base/hash.h"

namespace ndmesh::train {
namespace {

// Even 2^40 windows are mixed well after some 80 rounds; a round costs two hashes, the whole about a
// microsecond.
constexpr std::uint64_t rounds = 96;

}  // namespace

Permutation::Permutation(std::uint64_t size, std::uint64_t seed, std::uint64_t epoch)
    : size_(size), key_(random_at(seed, epoch)) {}

std::uint64_t Permutation::operator()(std::uint64_t x) const {
  for (std::uint64_t round = 0; round < rounds; ++round) {
    const std::uint64_t round_key = random_at(key_, round);
    const std::uint64_t sum = round_key % size_;
    const std::uint64_t partner = sum >= x ? sum - x : sum + size_ - x;
    // Both of a pair must draw the same bit, so the larger one names the pair.
    const bool swap = (random_at(round_key, std::max(x, partner)) & 1) != 0;
    x = swap ? partner : x;
  }
  return x;
}

SampleOrder::SampleOrder(std::int64_t tokens, std::int64_t seq_len, bool shuffle, std::uint64_t seed)
    : tokens_(tokens), seq_len_(seq_len), windows_(0), shuffle_(shuffle), seed_(seed) {
  if (seq_len < 1) {
    throw RequestError(fmt::format("batch.seq_len is {}; at least 1 is allowed", seq_len));
  }
  const std::int64_t margin = shuffle ? 1 : 2;  // the last window's targets; in file order also the modulus's
  if (tokens < margin || tokens - margin < seq_len) {
    throw RequestError(
        fmt::format("{} tokens are too few: batch.seq_len {}, {}, needs {} more than seq_len: give more data "
                    "or set batch.seq_len to "
                    "at most {}",
                    tokens, seq_len, shuffle ? "shuffled" : "in file order", margin,
                    std::max<std::int64_t>(tokens - margin, 0)));
  }
  windows_ = (tokens - 1) / seq_len;
}

std::int64_t SampleOrder::start_of(std::int64_t n) const {
  if (shuffle_) {
    const Permutation order(windows_, seed_, n / windows_);
    return static_cast<std::int64_t>(order(n % windows_)) * seq_len_;
  }
  // n * seq_len may need more than 64 bits in a long run.
  const auto product = static_cast<unsigned __int128>(n) * static_cast<unsigned __int128>(seq_len_);
  return static_cast<std::int64_t>(product % static_cast<unsigned __int128>(tokens_ - seq_len_ - 1));
}

}  // namespace ndmesh::train
