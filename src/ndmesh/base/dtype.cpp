#include "ndmesh/base/dtype.h"

#include <array>

namespace ndmesh {
namespace {

struct Entry {
  DType dtype;
  std::string_view name;
  std::int64_t bytes;
};

constexpr std::array<Entry, 10> entries = {{
    {DType::float64, "float64", 8},
    {DType::float32, "float32", 4},
    {DType::bfloat16, "bfloat16", 2},
    {DType::float16, "float16", 2},
    {DType::int64, "int64", 8},
    {DType::int32, "int32", 4},
    {DType::int16, "int16", 2},
    {DType::int8, "int8", 1},
    {DType::uint8, "uint8", 1},
    {DType::boolean, "bool", 1},
}};

const Entry& entry_of(DType dtype) {
  return entries[static_cast<std::size_t>(dtype)];
}

}  // namespace

std::int64_t bytes_of(DType dtype) {
  return entry_of(dtype).bytes;
}

std::string_view name_of(DType dtype) {
  return entry_of(dtype).name;
}

std::optional<DType> dtype_from_name(std::string_view name) {
  constexpr std::string_view prefix = "torch.";
  if (name.starts_with(prefix)) {
    name.remove_prefix(prefix.size());
  }
  for (const Entry& entry : entries) {
    if (entry.name == name) {
      return entry.dtype;
    }
  }
  return std::nullopt;
}

}  // namespace ndmesh
