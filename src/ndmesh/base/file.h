#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace ndmesh {

/// The whole of a regular file. RequestError when it is missing, unreadable, no regular file (a folder, a
/// device, a pipe) or longer than `most_bytes`, which is checked before anything is allocated.
std::string read_file(const std::filesystem::path& path, std::int64_t most_bytes);

/// Writes a file whole, over one that is there, in folders that are made if need be. RunError when it cannot be written.
void write_file(const std::filesystem::path& path, std::string_view text);

}  // namespace ndmesh
