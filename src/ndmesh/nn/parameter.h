#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace ndmesh::nn {

/// A leaf that requires a gradient and has shape and dtype but no memory: reading it throws. A strategy gives
/// it memory.
at::Tensor unmaterialised(at::IntArrayRef shape, at::ScalarType dtype);

/// Whether `tensor`'s storage holds memory now.
bool has_memory(const at::Tensor& tensor);

/// Takes the memory of `tensor`'s storage away; its size is kept, and any read throws "`why`". Views share
/// the fate.
void drop_memory(const at::Tensor& tensor, std::string why);

/// Gives a storage without memory new, uninitialised memory of its size, booked to the current MemoryScope.
void take_memory(const at::Tensor& tensor);

/// Makes `parameter` a view of `flat` (same dtype, one dim) from element `offset`; the tensor object stays
/// the same, so whoever holds it sees the new memory.
void place(const at::Tensor& parameter, const at::Tensor& flat, std::int64_t offset);

}  // namespace ndmesh::nn
