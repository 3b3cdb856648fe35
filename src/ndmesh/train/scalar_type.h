#pragma once

#include <c10/core/ScalarType.h>

#include <optional>

#include "ndmesh/base/dtype.h"

namespace ndmesh::train {

/// libtorch's name of a dtype.
at::ScalarType scalar_type(DType dtype);

/// The other way; nothing where ndmesh has no name for it.
std::optional<DType> dtype_of(at::ScalarType type);

/// Whether weights may be stored in it.
bool is_floating(DType dtype);

}  // namespace ndmesh::train
