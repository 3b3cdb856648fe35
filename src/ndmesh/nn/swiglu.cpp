#include <ATen/Functions.h>

#include "ndmesh/nn/autograd.h"
#include "ndmesh/nn/functional.h"
#include "ndmesh/nn/kernels.h"

namespace ndmesh::nn {

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  TORCH_CHECK(gate.sizes() == up.sizes() && gate.scalar_type() == up.scalar_type(), "swiglu: gate of shape ",
              gate.sizes(), " and up of shape ", up.sizes());
  Tensors out;
  {
    const WithoutAutograd plain;
    out = {kernels_for(gate).swiglu(gate, up)};
  }
  attach(
      "swiglu", {gate, up}, out, {gate, up},
      [](const Tensors& saved, const Tensors& grads, const Needs&) -> Tensors {
        if (!grads[0].defined()) {
          return Tensors(2);
        }
        const auto [dgate, dup] = kernels_for(saved[0]).swiglu_backward(saved[0], saved[1], grads[0]);
        return {dgate, dup};
      },
      [](const Tensors& saved) -> Tensors {
        const WithoutAutograd plain;
        return {kernels_for(saved[0]).swiglu(saved[0], saved[1])};
      });
  return out[0];
}

}  // namespace ndmesh::nn
