#include "ndmesh/train/partial_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "ndmesh/base/error.h"

namespace ndmesh::train {
namespace {

std::filesystem::path partial_of(std::filesystem::path file) {
  return file += ".partial";
}

/// Whether the file system cannot take space beforehand; then a full disk shows while writing.
bool is_unsupported(int error) {
  return error == EOPNOTSUPP || error == ENOSYS || error == EINVAL;
}

}  // namespace

PartialFile::PartialFile(const std::filesystem::path& file, std::uint64_t bytes)
    : file_(file), partial_(partial_of(file)), expected_(bytes) {
  ::unlink(partial_.c_str());  // what a killed run left; O_EXCL then follows no link
  descriptor_ = ::open(partial_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor_ < 0) {
    fail("create");
  }
  if (bytes > 0 && ::fallocate(descriptor_, 0, 0, static_cast<off_t>(bytes)) != 0 && !is_unsupported(errno)) {
    const int error = errno;
    ::close(descriptor_);
    ::unlink(partial_.c_str());
    errno = error;
    fail("take the space for");
  }
}

PartialFile::~PartialFile() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
    ::unlink(partial_.c_str());
  }
}

void PartialFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count < 0) {
      fail("write");
    }
    written_ += static_cast<std::uint64_t>(count);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

void PartialFile::publish() {
  // The data must be on the disk before the name says so.
  if (::fsync(descriptor_) != 0 || std::rename(partial_.c_str(), file_.c_str()) != 0) {
    fail("publish");
  }
  ::close(descriptor_);
  descriptor_ = -1;
  sync_folder(file_.has_parent_path() ? file_.parent_path() : ".");
}

void PartialFile::fail(const char* doing) const {
  throw RunError(fmt::format(
      "{}: could not {} it: {} ({} of {} bytes were written; an older file of that name is untouched)",
      file_.string(), doing, std::strerror(errno), written_, expected_));
}

void sync_folder(const std::filesystem::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool synced = descriptor >= 0 && ::fsync(descriptor) == 0;
  const int error = errno;
  if (descriptor >= 0) {
    ::close(descriptor);
  }
  if (!synced) {
    throw RunError(fmt::format("{}: could not sync the folder: {}", folder.string(), std::strerror(error)));
  }
}

}  // namespace ndmesh::train
