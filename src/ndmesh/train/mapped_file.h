#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace ndmesh::train {

/// A file mapped read-only for as long as this lives. Its bytes are shared by all threads and by the page
/// cache, so a file may be larger than memory. Cutting a file short while it is mapped ends the process
/// (SIGBUS): replace files by rename.
class MappedFile {
 public:
  /// RequestError when it cannot be opened, is a folder, or cannot be mapped. An empty file gives no bytes.
  explicit MappedFile(const std::filesystem::path& file);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace ndmesh::train
