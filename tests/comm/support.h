#pragma once

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "ndmesh/comm/world.h"
#include "ndmesh/layout/layout.h"

namespace ndmesh::comm {

/// Runs `body` on `ranks` ranks of one axis.
inline void run(std::int64_t ranks, const std::function<void(Communicator&)>& body,
                const Limits& limits = {}) {
  run_ranks(mesh::Mesh({.dp_shard = ranks}), limits, body);
}

/// The message of the error of type E that `f` must throw.
template <class E>
std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const E& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

/// Values that every rank can compute for every other: whole numbers, so that sums are exact in any dtype of
/// 16 bits.
inline at::Tensor values(std::int64_t rank, at::IntArrayRef shape, at::ScalarType dtype) {
  const std::int64_t count = c10::multiply_integers(shape);
  return ((at::arange(count, at::kLong) * 7 + rank * 5) % 23 - 11).to(dtype).reshape(shape);
}

/// Rows of `whole` that belong to member `index` of `size`.
inline at::Tensor rows(const at::Tensor& whole, std::int64_t size, std::int64_t index) {
  const layout::Range range = layout::split(whole.size(0), size, index);
  return whole.narrow(0, range.start, range.size).contiguous();
}

inline at::Tensor sum_of(std::int64_t ranks, at::IntArrayRef shape, at::ScalarType dtype) {
  at::Tensor sum = values(0, shape, at::kDouble);
  for (std::int64_t rank = 1; rank < ranks; ++rank) {
    sum = sum + values(rank, shape, at::kDouble);
  }
  return sum.to(dtype);
}

}  // namespace ndmesh::comm
