#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ndmesh {

/// Number formats of files and computations. Named as in job files and config.json.
enum class DType { float64, float32, bfloat16, float16, int64, int32, int16, int8, uint8, boolean };

std::int64_t bytes_of(DType dtype);
std::string_view name_of(DType dtype);

/// From "bfloat16", "torch.bfloat16" and the like; nothing when the name is unknown.
std::optional<DType> dtype_from_name(std::string_view name);

}  // namespace ndmesh
