#include "ndmesh/train/safetensors_header.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <utility>

#include "ndmesh/base/error.h"
#include "ndmesh/base/json.h"
#include "ndmesh/base/text.h"

namespace ndmesh::train {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "safetensors are little-endian and read in place");

// In the order of DType.
constexpr std::array<std::string_view, 10> dtype_names = {"F64", "F32", "BF16", "F16", "I64",
                                                          "I32", "I16", "I8",   "U8",  "BOOL"};
constexpr std::size_t length_bytes = sizeof(std::uint64_t);
constexpr std::size_t most_problems = 20;  // of a hostile file; the message stays readable

std::optional<DType> dtype_of(const std::string& name) {
  const auto found = std::find(dtype_names.begin(), dtype_names.end(), name);
  if (found == dtype_names.end()) {
    return std::nullopt;
  }
  return static_cast<DType>(found - dtype_names.begin());
}

/// The JSON text of the header.
std::string_view header_text(std::span<const std::byte> file, const std::string& source) {
  if (file.size() < length_bytes) {
    throw RequestError(
        fmt::format("{}: {} bytes are too few for a safetensors file, whose header length alone takes 8",
                    source, file.size()));
  }
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), length_bytes);
  if (length > safetensors_header_limit) {
    throw RequestError(
        fmt::format("{}: header length {} is over the limit of {} bytes; is it a safetensors file?", source,
                    length, safetensors_header_limit));
  }
  if (length > file.size() - length_bytes) {
    throw RequestError(
        fmt::format("{}: header length {} reaches past the end of the file ({} bytes): the file is cut short",
                    source, length, file.size()));
  }
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + length_bytes, length);
  if (!text.starts_with('{')) {
    throw RequestError(fmt::format("{}: the header is not a JSON object: it does not begin with {{", source));
  }
  return text;
}

/// What is wrong with one entry of the header; thrown and caught here, where file and tensor are added.
struct Broken {
  std::string reason;
};

const json& member(const json& entry, const char* key) {
  const auto found = entry.find(key);
  if (found == entry.end()) {
    throw Broken{fmt::format("has no {}", key)};
  }
  return *found;
}

std::uint64_t count_from(const json& value, const char* key) {
  // Negative, fractional and over-long numbers are other kinds to the parser.
  if (!value.is_number_unsigned()) {
    throw Broken{fmt::format("{} must hold whole numbers from 0 to 2^64 - 1", key)};
  }
  return value.get<std::uint64_t>();
}

DType dtype_from(const json& value) {
  if (!value.is_string()) {
    throw Broken{"dtype must be a text"};
  }
  const auto& name = value.get_ref<const std::string&>();
  const std::optional<DType> dtype = dtype_of(name);
  if (!dtype) {
    throw Broken{fmt::format("dtype {} is not read; {} are", shown(name), fmt::join(dtype_names, ", "))};
  }
  return *dtype;
}

/// Bytes of a dense tensor; throws where the product leaves 63 bits, whatever zeros follow.
std::uint64_t dense_bytes(const StoredTensor& tensor) {
  std::int64_t bytes = bytes_of(tensor.dtype);
  for (const std::int64_t extent : tensor.shape) {
    if (__builtin_mul_overflow(bytes, extent, &bytes)) {
      throw Broken{fmt::format("shape [{}] has more than 2^63 bytes", fmt::join(tensor.shape, ", "))};
    }
  }
  return static_cast<std::uint64_t>(bytes);
}

StoredTensor tensor_from(const json& entry, std::uint64_t data_bytes) {
  if (!entry.is_object()) {
    throw Broken{"must be an object with dtype, shape and data_offsets"};
  }
  StoredTensor tensor;
  tensor.dtype = dtype_from(member(entry, "dtype"));
  const json& shape = member(entry, "shape");
  const json& offsets = member(entry, "data_offsets");
  if (entry.size() != 3 || !shape.is_array() || !offsets.is_array() || offsets.size() != 2) {
    throw Broken{"must have a list as shape, two numbers as data_offsets, and dtype, nothing else"};
  }
  for (const json& value : shape) {
    const std::uint64_t extent = count_from(value, "shape");
    if (!std::in_range<std::int64_t>(extent)) {
      throw Broken{fmt::format("shape holds {}, which is over 2^63", extent)};
    }
    tensor.shape.push_back(static_cast<std::int64_t>(extent));
  }
  tensor.begin = count_from(offsets[0], "data_offsets");
  tensor.end = count_from(offsets[1], "data_offsets");
  if (tensor.begin > tensor.end) {
    throw Broken{fmt::format("data_offsets [{}, {}] end before they begin", tensor.begin, tensor.end)};
  }
  if (tensor.end > data_bytes) {
    throw Broken{fmt::format("data_offsets [{}, {}] reach past the {} bytes of data: the file is cut short",
                             tensor.begin, tensor.end, data_bytes)};
  }
  if (const std::uint64_t bytes = dense_bytes(tensor); tensor.end - tensor.begin != bytes) {
    throw Broken{fmt::format("data_offsets [{}, {}] span {} bytes, but {} of shape [{}] take {}",
                             tensor.begin, tensor.end, tensor.end - tensor.begin,
                             safetensors_name(tensor.dtype), fmt::join(tensor.shape, ", "), bytes)};
  }
  return tensor;
}

std::map<std::string, std::string> metadata_from(const json& value) {
  std::map<std::string, std::string> metadata;
  if (!value.is_object()) {
    throw Broken{"must be an object of texts"};
  }
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) {
      throw Broken{fmt::format("holds {}, which is no text", shown(key))};
    }
    metadata.emplace(key, text.get<std::string>());
  }
  return metadata;
}

/// Sorted by place in the file, each tensor must begin where the one before ends, and the last must end the
/// data.
void check_places(const SafetensorsHeader& header, std::uint64_t data_bytes, const std::string& source) {
  std::vector<std::pair<const StoredTensor*, const std::string*>> sorted;
  for (const auto& [name, tensor] : header.tensors) {
    sorted.emplace_back(&tensor, &name);
  }
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first->begin, a.first->end) < std::pair(b.first->begin, b.first->end);
  });
  std::uint64_t filled = 0;
  for (const auto& [tensor, name] : sorted) {
    if (tensor->begin != filled) {
      throw RequestError(
          fmt::format("{}: tensor {} begins at byte {} of the data, where {} is expected: {}", source,
                      shown(*name), tensor->begin, filled,
                      tensor->begin < filled ? "tensors overlap" : "no tensor holds the bytes before it"));
    }
    filled = tensor->end;
  }
  if (filled != data_bytes) {
    throw RequestError(fmt::format("{}: {} bytes of data, of which the last {} belong to no tensor", source,
                                   data_bytes, data_bytes - filled));
  }
}

}  // namespace

std::string_view safetensors_name(DType dtype) {
  return dtype_names[static_cast<std::size_t>(dtype)];
}

SafetensorsHeader read_safetensors_header(std::span<const std::byte> file, const std::string& source) {
  const std::string_view text = header_text(file, source);
  const json parsed = parse_json(text, source, {.depth = 3, .bytes = safetensors_header_limit});
  SafetensorsHeader header;
  header.data_start = length_bytes + text.size();
  const std::uint64_t data_bytes = file.size() - header.data_start;

  Problems problems;
  for (const auto& [name, entry] : parsed.items()) {
    try {
      if (name == safetensors_metadata_key) {
        header.metadata = metadata_from(entry);
      } else {
        header.tensors.emplace(name, tensor_from(entry, data_bytes));
      }
    } catch (const Broken& broken) {
      problems.add(fmt::format("{}: tensor {} {}", source, shown(name), broken.reason));
    }
    if (problems.list().size() == most_problems) {
      break;
    }
  }
  problems.raise();
  check_places(header, data_bytes, source);
  return header;
}

}  // namespace ndmesh::train
