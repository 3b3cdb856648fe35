#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <span>

#include "ndmesh/comm/call.h"

/// Moving and adding elements of plain memory, on the calling thread. Pointers are to the first element.
namespace ndmesh::comm {

/// Copies `count` elements; nothing when source and destination are the same memory. Dtypes are the same, or
/// both are floating and each element is rounded once.
void copy_elements(void* to, at::ScalarType to_dtype, const void* from, at::ScalarType from_dtype,
                   std::int64_t count);

/// The memory of one tensor on every rank.
using Sources = std::span<const void* const>;

/// to[i] = from[0][i] + from[1][i] + ..., plus to[i] when `accumulate`: in this order, in float32 (float64
/// when either dtype is, int64 for int64), rounded once at the end. `to_dtype` is `from_dtype` or a wider
/// floating one.
void sum_elements(void* to, at::ScalarType to_dtype, Sources from, at::ScalarType from_dtype, bool accumulate,
                  std::int64_t count);

/// Replaces elements begin .. begin + count - 1 of every tensor by their reduction; sums as sum_elements
/// does. A NaN on any rank gives NaN.
void reduce_in_place(std::span<void* const> tensors, at::ScalarType dtype, Reduction reduction,
                     std::int64_t begin, std::int64_t count);

}  // namespace ndmesh::comm
