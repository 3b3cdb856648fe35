#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "ndmesh/comm/world.h"
#include "ndmesh/layout/layout.h"

namespace ndmesh::parallel {

/// The whole tensor, on every rank, from the parts `owned` of the ranks that cut it. Each rank sends its part once. A
/// tensor that nothing cuts comes back as it is. Collective over layout.cut_axes().
at::Tensor gather_whole(const at::Tensor& owned, const layout::TensorLayout& layout,
                        comm::Communicator& communicator, const std::string& label);

}  // namespace ndmesh::parallel
