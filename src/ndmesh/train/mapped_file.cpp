#include "ndmesh/train/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "ndmesh/base/error.h"

namespace ndmesh::train {
namespace {

/// Closes a descriptor at the end of a scope; a mapping outlives it.
struct Descriptor {
  int number;
  ~Descriptor() {
    if (number >= 0) {
      ::close(number);
    }
  }
};

[[noreturn]] void refuse(const std::filesystem::path& file, const char* reason) {
  throw RequestError(fmt::format("{}: cannot be read: {}", file.string(), reason));
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& file) {
  const Descriptor descriptor{
      ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};  // no waiting on a pipe
  struct stat status {};
  if (descriptor.number < 0 || ::fstat(descriptor.number, &status) != 0) {
    refuse(file, std::strerror(errno));
  }
  if (!S_ISREG(status.st_mode)) {
    refuse(file, S_ISDIR(status.st_mode) ? "it is a folder" : "it is not a regular file");
  }
  if (status.st_size == 0) {
    return;
  }
  const auto size = static_cast<std::size_t>(status.st_size);
  void* start = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor.number, 0);
  if (start == MAP_FAILED) {
    refuse(file, std::strerror(errno));
  }
  bytes_ = {static_cast<const std::byte*>(start), size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) {
    ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  }
}

}  // namespace ndmesh::train
