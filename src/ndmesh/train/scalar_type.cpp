#include "ndmesh/train/scalar_type.h"

#include <algorithm>
#include <array>

namespace ndmesh::train {
namespace {

// In the order of DType.
constexpr std::array<at::ScalarType, 10> types = {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf,
                                                  at::kLong,   at::kInt,   at::kShort,    at::kChar,
                                                  at::kByte,   at::kBool};

}  // namespace

at::ScalarType scalar_type(DType dtype) {
  return types[static_cast<std::size_t>(dtype)];
}

std::optional<DType> dtype_of(at::ScalarType type) {
  const auto found = std::find(types.begin(), types.end(), type);
  if (found == types.end()) {
    return std::nullopt;
  }
  return static_cast<DType>(found - types.begin());
}

bool is_floating(DType dtype) {
  return c10::isFloatingType(scalar_type(dtype));
}

}  // namespace ndmesh::train
