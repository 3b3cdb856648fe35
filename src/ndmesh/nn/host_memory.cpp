#include "ndmesh/nn/host_memory.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

#include "ndmesh/base/memory_category.h"

namespace ndmesh::nn {
namespace {

thread_local HostTraffic traffic;

std::int64_t bytes_copied(const at::Tensor& to, const at::Tensor& from) {
  const at::NoGradGuard no_grad;
  to.copy_(from);
  return to.numel() * static_cast<std::int64_t>(std::min(to.element_size(), from.element_size()));
}

}  // namespace

at::Tensor empty_on_host(at::IntArrayRef shape, at::ScalarType dtype) {
  const HostMemoryScope host;
  return at::empty(shape, at::TensorOptions().dtype(dtype));
}

void copy_to_host(const at::Tensor& to, const at::Tensor& from) {
  traffic.to_host += bytes_copied(to, from);
}

void copy_to_device(const at::Tensor& to, const at::Tensor& from) {
  traffic.to_device += bytes_copied(to, from);
}

at::Tensor brought_to_host(const at::Tensor& tensor) {
  at::Tensor copy = empty_on_host(tensor.sizes(), tensor.scalar_type());
  copy_to_host(copy, tensor);
  return copy;
}

at::Tensor brought_to_device(const at::Tensor& tensor) {
  at::Tensor copy = at::empty(tensor.sizes(), tensor.options());
  copy_to_device(copy, tensor);
  return copy;
}

void add_to_host(const at::Tensor& to, const at::Tensor& from) {
  constexpr std::int64_t piece = std::int64_t{1} << 20;
  const MemoryScope scope(MemoryCategory::workspace);
  const at::NoGradGuard no_grad;
  for (std::int64_t start = 0; start < to.numel(); start += piece) {
    const std::int64_t count = std::min(piece, to.numel() - start);
    to.view({-1}).narrow(0, start, count).add_(brought_to_host(from.view({-1}).narrow(0, start, count)));
  }
}

HostTraffic take_host_traffic() {
  return std::exchange(traffic, {});
}

}  // namespace ndmesh::nn
