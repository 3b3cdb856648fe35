#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace ndmesh::train {

/// A file that appears whole or not at all: bytes go into FILE.partial, and publish() syncs it and renames it
/// over FILE. Without publish() the partial file is removed and an older FILE stays as it was.
class PartialFile {
 public:
  /// Takes the space of `bytes` first, where the file system can, so that a full disk is found before
  /// anything is computed. RunError with path and bytes when that or any later step fails.
  PartialFile(const std::filesystem::path& file, std::uint64_t bytes);
  ~PartialFile();
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void publish();

 private:
  [[noreturn]] void fail(const char* doing) const;

  std::filesystem::path file_;
  std::filesystem::path partial_;
  std::uint64_t expected_;
  std::uint64_t written_ = 0;
  int descriptor_ = -1;
};

/// Makes names that were created, renamed or removed in `folder` outlast a power cut. RunError when that
/// fails.
void sync_folder(const std::filesystem::path& folder);

}  // namespace ndmesh::train
