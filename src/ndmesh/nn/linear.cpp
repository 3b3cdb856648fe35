#include <ATen/Functions.h>

#include "ndmesh/base/memory_category.h"
#include "ndmesh/nn/autograd.h"
#include "ndmesh/nn/functional.h"

namespace ndmesh::nn {
namespace {

at::Tensor as_rows(const at::Tensor& t) {
  return t.reshape({-1, t.size(-1)});
}

Tensors linear_backward(const Tensors& saved, const Tensors& grads, const Needs& needs) {
  const at::Tensor& x = saved[0];
  const at::Tensor& weight_OI = saved[1];
  Tensors result(3);
  if (!grads[0].defined()) {
    return result;
  }
  const at::Tensor dout_TO = as_rows(grads[0]);
  if (needs(0)) {
    result[0] = at::mm(dout_TO, weight_OI).view_as(x);
  }
  const MemoryScope scope(MemoryCategory::buffers);
  if (needs(1)) {
    result[1] = at::mm(dout_TO.t(), as_rows(x));
  }
  if (needs(2)) {
    result[2] = dout_TO.sum(0);
  }
  return result;
}

}  // namespace

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight_OI, const at::Tensor& bias_O) {
  Tensors out;
  {
    const WithoutAutograd plain;
    out = {at::linear(x, weight_OI, bias_O)};
  }
  attach("linear", {x, weight_OI, bias_O}, out, {x, weight_OI}, linear_backward);
  return out[0];
}

}  // namespace ndmesh::nn
