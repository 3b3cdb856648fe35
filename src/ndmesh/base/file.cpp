#include "ndmesh/base/file.h"

#include <fmt/format.h>

#include <fstream>
#include <system_error>

#include "ndmesh/base/error.h"
#include "ndmesh/base/text.h"

namespace ndmesh {

std::string read_file(const std::filesystem::path& path, std::int64_t most_bytes) {
  const std::string name = shown(path.string());
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) {
    throw RequestError(fmt::format("{}: cannot be read: {}", name, error ? error.message() : "no such file"));
  }
  if (!std::filesystem::is_regular_file(status)) {
    throw RequestError(name + ": is not a regular file");
  }
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (error || size > static_cast<std::uintmax_t>(most_bytes)) {
    throw RequestError(error ? fmt::format("{}: cannot be read: {}", name, error.message())
                             : fmt::format("{}: has {} bytes; at most {} are read", name, size, most_bytes));
  }
  std::string text(size, '\0');
  std::ifstream file(path, std::ios::binary);
  if (!file.read(text.data(), static_cast<std::streamsize>(size))) {
    throw RequestError(name + ": cannot be read");
  }
  return text;
}

void write_file(const std::filesystem::path& path, std::string_view text) {
  std::error_code ignored_error;  // without its folder the file cannot be written, which is reported
  std::filesystem::create_directories(path.parent_path(), ignored_error);
  std::ofstream file(path, std::ios::binary);
  file << text;
  if (!file.flush()) {
    throw RunError(fmt::format("{}: cannot be written", shown(path.string())));
  }
}

}  // namespace ndmesh
