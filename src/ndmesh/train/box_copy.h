#pragma once

#include <cstddef>

#include "ndmesh/base/dtype.h"
#include "ndmesh/layout/layout.h"

namespace ndmesh::train {

/// Copies `box` of a dense row-major tensor of `shape`, which begins at `source` (any alignment), to the
/// dense `target` (aligned, of the box's elements), converting from one floating dtype to another by rounding
/// to nearest even. Runs that lie together in both are copied as one. std::invalid_argument for a box outside
/// the shape or a dtype that is not floating.
void copy_box(const std::byte* source, DType source_dtype, const layout::Shape& shape, const layout::Box& box,
              std::byte* target, DType target_dtype);

}  // namespace ndmesh::train
