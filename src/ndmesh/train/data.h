#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ndmesh/job/job.h"
#include "ndmesh/train/sample_order.h"

namespace ndmesh::train {

/// The tokens of some files, one after another, read through memory maps. Immutable, shared by all rank
/// threads.
class TokenFiles {
 public:
  /// One RequestError for all files that cannot be read, are empty, have a broken llm.c header (magic
  /// 20240520, version 1, count) or an odd number of bytes. text: every byte is a token. u16: raw
  /// little-endian (nanoGPT's .bin is that too). bin: with llm.c's header of 256 int32, or, where the magic
  /// is absent, raw as u16.
  TokenFiles(const std::vector<std::string>& files, job::DataFormat format);
  ~TokenFiles();

  std::int64_t size() const { return size_; }
  /// Tokens start .. start + count - 1, as int64, into `out`. std::out_of_range when they are not all there.
  void read(std::int64_t start, std::int64_t count, std::int64_t* out) const;
  /// Largest token, found by one pass over the files: checked against the vocabulary before anything starts.
  std::int64_t largest_token() const;

 private:
  struct Part;
  std::vector<std::unique_ptr<Part>> parts_;
  std::int64_t size_ = 0;
};

}  // namespace ndmesh::train
