#pragma once

#include <cstdint>
#include <filesystem>

namespace ndmesh::train {

/// A folder that appears whole or not at all: files go into path(), which is FOLDER.partial, and publish()
/// swaps it with FOLDER. Without publish() it is removed and an older FOLDER stays as it was.
///
/// Linux swaps two names in one step (renameat2, RENAME_EXCHANGE), so FOLDER is whole at any moment, also for
/// a reader and after a kill. Where the file system cannot (NFS among others), the old folder is first
/// renamed to FOLDER.old: a kill between the two renames leaves no FOLDER, but FOLDER.old and FOLDER.partial
/// both whole.
class PartialFolder {
 public:
  /// Removes what a killed run left. RunError when fewer than `bytes` are free there; here and in publish()
  /// std::filesystem::filesystem_error for what the system refuses.
  PartialFolder(const std::filesystem::path& folder, std::uint64_t bytes);
  ~PartialFolder();
  PartialFolder(const PartialFolder&) = delete;
  PartialFolder& operator=(const PartialFolder&) = delete;

  const std::filesystem::path& path() const { return partial_; }
  /// The folder that will be replaced; it may not exist.
  const std::filesystem::path& target() const { return folder_; }

  void publish();

 private:
  std::filesystem::path folder_;
  std::filesystem::path partial_;
};

}  // namespace ndmesh::train
