#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ndmesh {

/// A value of unknown origin as a message may show it: in double quotes, control and non-ASCII bytes as \xNN,
/// cut after 60 characters.
std::string shown(std::string_view value);

/// "a, b, c".
std::string join(const std::vector<std::string>& parts, std::string_view separator = ", ");

/// Pieces between separators, empty ones included.
std::vector<std::string> split(std::string_view text, char separator);

/// With ASCII letters in lower case.
std::string lower(std::string_view text);

}  // namespace ndmesh
