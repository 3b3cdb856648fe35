#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ndmesh::serve {

/// Text and tokens of a byte model (ModelSpec::byte_tokens): tokens 0 .. 255 are the bytes.
inline std::vector<std::int64_t> tokens_of(std::string_view text) {
  std::vector<std::int64_t> tokens;
  for (const char c : text) {
    tokens.push_back(static_cast<unsigned char>(c));
  }
  return tokens;
}

/// The byte of a token; nothing for the marks that some byte models number from 256 on.
inline std::string text_of(std::int64_t token) {
  return token >= 0 && token < 256 ? std::string(1, static_cast<char>(token)) : std::string();
}

inline std::string text_of(const std::vector<std::int64_t>& tokens) {
  std::string text;
  for (const std::int64_t token : tokens) {
    text += text_of(token);
  }
  return text;
}

}  // namespace ndmesh::serve
