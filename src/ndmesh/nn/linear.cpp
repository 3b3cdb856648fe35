#include <ATen/Functions.h>

#include "ndmesh/base/memory_category.h"
#include "ndmesh/nn/autograd.h"
#include "ndmesh/nn/functional.h"
#include "ndmesh/nn/kernels.h"

namespace ndmesh::nn {
namespace {

/// a_MK . b_KN
at::Tensor product(const at::Tensor& a_MK, const at::Tensor& b_KN) {
  at::Tensor out_MN = at::empty({a_MK.size(0), b_KN.size(1)}, a_MK.options());
  kernels_for(a_MK).multiply(out_MN, a_MK, b_KN, false);
  return out_MN;
}

at::Tensor as_rows(const at::Tensor& t) {
  return t.reshape({-1, t.size(-1)});
}

at::Tensor forward(const at::Tensor& x, const at::Tensor& weight_OI, const at::Tensor& bias_O) {
  TORCH_CHECK(x.size(-1) == weight_OI.size(1), "linear: x of shape ", x.sizes(), ", weight ",
              weight_OI.sizes());
  std::vector<std::int64_t> shape = x.sizes().vec();
  shape.back() = weight_OI.size(0);
  const at::Tensor x_TI = as_rows(x);
  if (!bias_O.defined()) {
    return product(x_TI, weight_OI.t()).view(shape);
  }
  at::Tensor out_TO = bias_O.expand({x_TI.size(0), -1}).contiguous();
  kernels_for(x).multiply(out_TO, x_TI, weight_OI.t(), true);
  return out_TO.view(shape);
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
    result[0] = product(dout_TO, weight_OI).view_as(x);
  }
  const MemoryScope scope(MemoryCategory::buffers);
  if (needs(1)) {
    result[1] = product(dout_TO.t(), as_rows(x));
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
    out = {forward(x, weight_OI, bias_O)};
  }
  attach("linear", {x, weight_OI, bias_O}, out, {x, weight_OI}, linear_backward);
  return out[0];
}

}  // namespace ndmesh::nn
