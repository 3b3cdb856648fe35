#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

/// The one seam between device and host memory. On a CPU build both are the same memory, but everything takes the same
/// path: what lives on the host is allocated here, and crosses by these copies, which are counted.
namespace ndmesh::nn {

/// Uninitialised; booked to host memory under the current MemoryScope.
at::Tensor empty_on_host(at::IntArrayRef shape, at::ScalarType dtype);

/// Copy between tensors of one shape, the device's and the host's; converts where dtypes differ, on the side where that
/// leaves fewer bytes to send. `to` is complete on return.
void copy_to_host(const at::Tensor& to, const at::Tensor& from);
void copy_to_device(const at::Tensor& to, const at::Tensor& from);

/// A copy on the other side.
at::Tensor brought_to_host(const at::Tensor& tensor);
at::Tensor brought_to_device(const at::Tensor& tensor);

/// Adds a device's tensor to the host's, of one shape and dtype, both dense; by pieces, so that it takes few bytes beside them.
void add_to_host(const at::Tensor& to, const at::Tensor& from);

/// Bytes sent by this thread's copies.
struct HostTraffic {
  std::int64_t to_host = 0;
  std::int64_t to_device = 0;
};
/// Since the last call on this thread; counting begins anew.
HostTraffic take_host_traffic();

}  // namespace ndmesh::nn
