#pragma once

#include <cstdint>

namespace ndmesh::train {

/// A permutation of 0 .. size - 1 keyed by (seed, epoch) that needs no memory: the swap-or-not shuffle of
/// Hoang, Morris and Rogaway (CRYPTO 2012), with xxHash as its random function. Round r pairs x with (key_r -
/// x) mod size and swaps the pair or not; each round is its own inverse, so the whole is a bijection for
/// every size.
class Permutation {
 public:
  /// `size` is at least 1.
  Permutation(std::uint64_t size, std::uint64_t seed, std::uint64_t epoch);
  /// Where `x` < size goes.
  std::uint64_t operator()(std::uint64_t x) const;

 private:
  std::uint64_t size_, key_;
};

/// Which tokens make sample n, for any mesh: depends on (seed, n) only, so position in the data is one
/// counter of samples consumed and a resumed run goes on where it stopped on whatever mesh.
///   shuffle off: the seq_len + 1 tokens from position (n * seq_len) mod (length - seq_len - 1)
///   shuffle on:  the file is cut into floor((length - 1) / seq_len) windows; epoch e visits each once, in the order of a
///                Permutation keyed by (seed, e)
class SampleOrder {
 public:
  /// RequestError when the tokens are too few for one window.
  SampleOrder(std::int64_t tokens, std::int64_t seq_len, bool shuffle, std::uint64_t seed);
  /// First token of sample `n` >= 0 (counted from the start of training). Any number of threads.
  std::int64_t start_of(std::int64_t n) const;
  std::int64_t samples_per_epoch() const { return windows_; }

 private:
  std::int64_t tokens_, seq_len_, windows_;
  bool shuffle_;
  std::uint64_t seed_;
};

}  // namespace ndmesh::train
