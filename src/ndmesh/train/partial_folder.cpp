#include "ndmesh/train/partial_folder.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <system_error>

#include "ndmesh/base/error.h"
#include "ndmesh/train/partial_file.h"

namespace ndmesh::train {
namespace {

namespace fs = std::filesystem;

fs::path with_suffix(fs::path path, const char* suffix) {
  return path += suffix;
}

/// Puts `partial` in the place of `folder`, whose content then lies in `partial` or is gone.
void replace(const fs::path& folder, const fs::path& partial) {
  if (::renameat2(AT_FDCWD, partial.c_str(), AT_FDCWD, folder.c_str(), RENAME_EXCHANGE) == 0) {
    return;
  }
  if (errno != EINVAL && errno != ENOSYS) {
    throw fs::filesystem_error("cannot exchange", partial, folder, {errno, std::generic_category()});
  }
  const fs::path old = with_suffix(folder, ".old");
  fs::remove_all(old);
  fs::rename(folder, old);
  fs::rename(partial, folder);
  fs::remove_all(old);
}

}  // namespace

PartialFolder::PartialFolder(const fs::path& folder, std::uint64_t bytes)
    : folder_(fs::weakly_canonical(fs::absolute(folder))) {
  if (!folder_.has_filename()) {
    folder_ = folder_.parent_path();  // "models/" names models
  }
  partial_ = with_suffix(folder_, ".partial");
  fs::create_directories(folder_.parent_path());
  fs::remove_all(partial_);
  const std::uintmax_t free = fs::space(folder_.parent_path()).available;
  if (free < bytes) {
    throw RunError(fmt::format("{}: {} bytes are to be written, but {} are free there; nothing was changed",
                               folder_.string(), bytes, free));
  }
  fs::create_directory(partial_);
}

PartialFolder::~PartialFolder() {
  std::error_code ignored;
  fs::remove_all(partial_, ignored);
}

void PartialFolder::publish() {
  sync_folder(partial_);
  if (fs::exists(folder_)) {
    replace(folder_, partial_);
  } else {
    fs::rename(partial_, folder_);
  }
  sync_folder(folder_.parent_path());
}

}  // namespace ndmesh::train
