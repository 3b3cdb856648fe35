#pragma once

#include <cstdint>
#include <vector>

#include "ndmesh/layout/layout.h"

namespace ndmesh::layout {

/// What one rank holds of one dim, in the order of local memory. Never empty: nothing at all is one range of
/// size 0.
using Ranges = std::vector<Range>;

/// Sum of sizes.
std::int64_t extent(const Ranges& ranges);

/// What part `index` of `parts` is left with of `ranges`, the dim of `placement`. Ranges beyond the tensor
/// are padding.
Ranges cut(const Placement& placement, const Ranges& ranges, std::int64_t parts, std::int64_t index);

/// The part of `ranges` below `size`: without padding.
Ranges without_padding(const Ranges& ranges, std::int64_t size);

/// How many neighbouring parts hold the same unit when `units` units are cut into `parts` parts; 1 when there
/// are at least as many units as parts.
std::int64_t ranks_per_unit(std::int64_t units, std::int64_t parts);

}  // namespace ndmesh::layout
