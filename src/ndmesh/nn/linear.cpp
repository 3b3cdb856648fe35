#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

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
  at::Tensor out_TO = bias_O.repeat({x_TI.size(0), 1});  // a copy even of one row: it is added to in place
  kernels_for(x).multiply(out_TO, x_TI, weight_OI.t(), true);
  return out_TO.view(shape);
}

at::Tensor out_in(const at::Tensor& weight, bool transposed) {
  return transposed ? weight.t() : weight;
}

Tensors linear_backward(const Tensors& saved, const Tensors& grads, const Needs& needs, bool transposed) {
  const at::Tensor& x = saved[0];
  Tensors result(3);
  if (!grads[0].defined()) {
    return result;
  }
  const at::Tensor dout_TO = as_rows(grads[0]);
  if (needs(0)) {
    result[0] = product(dout_TO, out_in(saved[1], transposed)).view_as(x);
  }
  const MemoryScope scope(MemoryCategory::buffers);
  if (needs.now(1)) {
    const at::Tensor x_TI = as_rows(x);
    result[1] = transposed ? product(x_TI.t(), dout_TO) : product(dout_TO.t(), x_TI);
  }
  if (needs(2)) {
    result[2] = dout_TO.sum(0);
  }
  return result;
}

}  // namespace

at::Tensor add_bias(const at::Tensor& x, const at::Tensor& bias_H) {
  Tensors out;
  {
    const WithoutAutograd plain;
    out = {x + bias_H};
  }
  attach("add_bias", {x, bias_H}, out, {}, [](const Tensors&, const Tensors& grads, const Needs& needs) {
    Tensors result(2);
    if (grads[0].defined()) {
      result[0] = grads[0];
      const MemoryScope scope(MemoryCategory::buffers);
      result[1] = needs(1) ? as_rows(grads[0]).sum(0) : at::Tensor();
    }
    return result;
  });
  return out[0];
}

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias_O, bool transposed) {
  Tensors out;
  {
    const WithoutAutograd plain;
    out = {forward(x, out_in(weight, transposed), bias_O)};
  }
  attach("linear", {x, weight, bias_O}, out, {x, weight},
         [transposed](const Tensors& saved, const Tensors& grads, const Needs& needs) {
           return linear_backward(saved, grads, needs, transposed);
         });
  return out[0];
}

}  // namespace ndmesh::nn
