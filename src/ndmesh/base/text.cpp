#include "ndmesh/base/text.h"

#include <fmt/format.h>

namespace ndmesh {

std::string shown(std::string_view value) {
  constexpr std::size_t longest = 60;
  std::string text = "\"";
  for (const char c : value.substr(0, longest)) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = byte >= 0x20 && byte < 0x7f;
    text += plain ? std::string(1, c) : fmt::format("\\x{:02x}", byte);
  }
  return text + (value.size() > longest ? "...\"" : "\"");
}

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  return fmt::format("{}", fmt::join(parts, separator));
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  std::size_t start = 0;
  for (std::size_t end = text.find(separator); end != std::string_view::npos;
       end = text.find(separator, start)) {
    parts.emplace_back(text.substr(start, end - start));
    start = end + 1;
  }
  parts.emplace_back(text.substr(start));
  return parts;
}

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return result;
}

}  // namespace ndmesh
