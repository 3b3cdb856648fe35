#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace ndmesh::nn {

/// RunError unless every element of `ids` (int64) is one of 0 .. vocab - 1, or `also`. Names `what`, the
/// first offender and its place. Reads CPU tensors only: on an accelerator it would wait for the device,
/// whose own kernels check.
void check_ids(const at::Tensor& ids, std::int64_t vocab, const char* what,
               std::optional<std::int64_t> also = {});

}  // namespace ndmesh::nn
