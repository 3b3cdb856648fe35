#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "ndmesh/layout/layout.h"

namespace ndmesh::parallel {

/// Views of the parts that `local`, what `rank` holds of a tensor (TensorLayout::padded_local_shape), consists of: one for
/// each of layout.boxes(rank), in that order. Padding is in none of them.
std::vector<at::Tensor> box_views(const at::Tensor& local, const layout::TensorLayout& layout,
                                  std::int64_t rank);

/// The part of `whole`, a tensor of the layout's shape, that is `box`.
at::Tensor box_of(const at::Tensor& whole, const layout::Box& box);

}  // namespace ndmesh::parallel
