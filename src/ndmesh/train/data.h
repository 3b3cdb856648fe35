#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "ndmesh/job/job.h"

namespace ndmesh::train {

/// The tokens of some files, one after another, read through memory maps. Immutable, shared by all rank threads.
class TokenFiles {
 public:
  /// RequestError for a file that cannot be read, is empty, has a broken llm.c header (magic 20240520, version 1, count)
  /// or an odd number of bytes. text: every byte is a token. u16: raw little-endian (nanoGPT's .bin is that too). bin: with
  /// llm.c's header of 256 int32, or, where the magic is absent, raw as u16.
  TokenFiles(const std::vector<std::string>& files, job::DataFormat format);
  ~TokenFiles();

  std::int64_t size() const;
  /// Tokens start .. start + count - 1, as int64, into `out`.
  void read(std::int64_t start, std::int64_t count, std::int64_t* out) const;
  /// Largest token, found by one pass over the files: checked against the vocabulary before anything starts.
  std::int64_t largest_token() const;

 private:
  struct Part;
  std::vector<std::unique_ptr<Part>> parts_;
  std::int64_t size_ = 0;
};

/// Which tokens make sample n, for any mesh: depends on (seed, n) only.
///   shuffle off: the seq_len + 1 tokens from position (n * seq_len) mod (length - seq_len - 1)
///   shuffle on:  the file is cut into floor((length - 1) / seq_len) windows; epoch e visits each once in the order of a
///                permutation keyed by (seed, e)
class SampleOrder {
 public:
  /// RequestError when the tokens are too few for one window.
  SampleOrder(std::int64_t tokens, std::int64_t seq_len, bool shuffle, std::uint64_t seed);
  /// First token of sample `n` (counted from the start of training).
  std::int64_t start_of(std::int64_t n) const;
  std::int64_t samples_per_epoch() const { return windows_; }

 private:
  std::int64_t tokens_, seq_len_, windows_;
  bool shuffle_;
  std::uint64_t seed_;
};

}  // namespace ndmesh::train
