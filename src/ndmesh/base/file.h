#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace ndmesh {

/// The whole of a regular file. RequestError when it is missing, unreadable, no regular file (a folder, a
/// device, a pipe) or longer than `most_bytes`, which is checked before anything is allocated.
std::string read_file(const std::filesystem::path& path, std::int64_t most_bytes);

}  // namespace ndmesh
