#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ndmesh/base/dtype.h"

namespace ndmesh::train {

struct StoredTensor {
  DType dtype = DType::float32;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;  ///< bytes from the start of the data part
  std::uint64_t end = 0;
};

/// What a safetensors file says of itself: 8 bytes of header length (little-endian), the header as a JSON
/// object, then the data, which the tensors fill without hole or overlap.
struct SafetensorsHeader {
  std::map<std::string, StoredTensor> tensors;
  std::map<std::string, std::string> metadata;
  std::size_t data_start = 0;  ///< bytes from the start of the file
};

inline constexpr std::uint64_t safetensors_header_limit =
    100'000'000;  ///< bytes; the limit of the reference reader
inline constexpr std::string_view safetensors_metadata_key = "__metadata__";

/// Reads the header of the file whose bytes are `file` and checks that all of it is true of them.
/// RequestError, naming `source`, tensor and reason, for anything else; takes no more memory than a few times
/// the header's own bytes.
SafetensorsHeader read_safetensors_header(std::span<const std::byte> file, const std::string& source);

/// "F32", "BF16" and so on.
std::string_view safetensors_name(DType dtype);

}  // namespace ndmesh::train
