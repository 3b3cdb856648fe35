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

/// Gradients of weight and bias.
Tensors weights_backward(const at::Tensor& x, const at::Tensor& dout, const Needs& needs, bool transposed,
                         std::size_t first) {
  const at::Tensor dout_TO = as_rows(dout);
  const MemoryScope scope(MemoryCategory::buffers);
  Tensors result(2);
  if (needs.now(first)) {
    const at::Tensor x_TI = as_rows(x);
    result[0] = transposed ? product(x_TI.t(), dout_TO) : product(dout_TO.t(), x_TI);
  }
  if (needs(first + 1)) {
    result[1] = dout_TO.sum(0);
  }
  return result;
}

at::Tensor input_gradient(const at::Tensor& weight, const at::Tensor& dout, bool transposed) {
  std::vector<std::int64_t> shape = dout.sizes().vec();
  shape.back() = out_in(weight, transposed).size(1);
  return product(as_rows(dout), out_in(weight, transposed)).view(shape);
}

Tensors linear_backward(const Tensors& saved, const Tensors& grads, const Needs& needs, bool transposed) {
  if (!grads[0].defined()) {
    return Tensors(3);
  }
  const at::Tensor dx = needs(0) ? input_gradient(saved[1], grads[0], transposed) : at::Tensor();
  Tensors weights = weights_backward(saved[0], grads[0], needs, transposed, 1);
  return {dx, weights[0], weights[1]};
}

/// A linear whose weights have their gradients at a turn of their own: a second operator, of the weights alone, whose
/// output has no memory and is handed the gradient of `out`.
void attach_in_two(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias_O, Tensors& out,
                   bool transposed) {
  Tensors of_weights = {at::empty({1}, x.options()).expand(out[0].sizes())};
  attach("linear weights", {weight, bias_O}, of_weights, {x},
         [transposed](const Tensors& saved, const Tensors& grads, const Needs& needs) {
           return grads[0].defined() ? weights_backward(saved[0], grads[0], needs, transposed, 0)
                                     : Tensors(2);
         },
         {.turn = weights_turn_of(x)});
  attach("linear", {x, of_weights[0]}, out, {weight},
         [transposed](const Tensors& saved, const Tensors& grads, const Needs& needs) -> Tensors {
           if (!grads[0].defined()) {
             return Tensors(2);
           }
           return {needs(0) ? input_gradient(saved[0], grads[0], transposed) : at::Tensor(), grads[0]};
         });
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
  if (weights_turn_of(x) > 0) {
    attach_in_two(x, weight, bias_O, out, transposed);
  } else {
    attach("linear", {x, weight, bias_O}, out, {x, weight},
           [transposed](const Tensors& saved, const Tensors& grads, const Needs& needs) {
             return linear_backward(saved, grads, needs, transposed);
           });
  }
  return out[0];
}

}  // namespace ndmesh::nn
