#pragma once

#include <ATen/core/Tensor.h>

namespace ndmesh::nn {

/// Large products of float32 matrices on a CPU, in blocks of oneDNN's batch-reduce product: on processors for which
/// MKL does not use its widest vectors this is more than twice as fast as libtorch's own (docs/benchmarks.md). Either
/// factor may be a transposed view. Rows of the result are divided over threads; results do not depend on their number.
/// Scratch of about 2.3 MiB a thread, MemoryCategory::workspace.

/// Whether blocks compute a_MK . b_KN: float32, all dims large enough to pay for laying out both factors.
bool blocks_can(const at::Tensor& a_MK, const at::Tensor& b_KN);

/// out_MN = a_MK . b_KN, or += with `add`; out has dense rows.
void blocked_matmul(at::Tensor& out_MN, const at::Tensor& a_MK, const at::Tensor& b_KN, bool add);

}  // namespace ndmesh::nn
