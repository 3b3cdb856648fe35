#pragma once

#include <cstdint>
#include <string>

namespace ndmesh::train {

/// The bytes of a safetensors file: header length, header, `data_bytes` zeros.
inline std::string safetensors_bytes(const std::string& header, std::size_t data_bytes) {
  std::string text;
  for (int byte = 0; byte < 8; ++byte) {
    text += static_cast<char>(std::uint64_t{header.size()} >> (8 * byte));
  }
  return text + header + std::string(data_bytes, '\0');
}

}  // namespace ndmesh::train
