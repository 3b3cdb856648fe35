#include <ATen/Functions.h>

#include "ndmesh/nn/autograd.h"
#include "ndmesh/nn/functional.h"
#include "ndmesh/nn/kernels.h"

namespace ndmesh::nn {
namespace {

at::Tensor computed(Activation activation, const at::Tensor& gate, const at::Tensor& up) {
  const WithoutAutograd plain;
  return kernels_for(gate).gated(activation, gate, up);
}

struct Halves {
  at::Tensor gate;
  at::Tensor up;
};

Halves halves_of(const at::Tensor& gate_up) {
  const WithoutAutograd plain;
  const std::int64_t width = gate_up.size(-1) / 2;
  return {gate_up.narrow(-1, 0, width), gate_up.narrow(-1, width, width)};
}

}  // namespace

at::Tensor gated(Activation activation, const at::Tensor& gate_any, const at::Tensor& up_any) {
  TORCH_CHECK(gate_any.dim() > 0, "gated: gate is a number without a dim");
  TORCH_CHECK(!up_any.defined() ||
                  (gate_any.sizes() == up_any.sizes() && gate_any.scalar_type() == up_any.scalar_type()),
              "gated: gate of shape ", gate_any.sizes(), " and up of shape ", up_any.sizes());
  const at::Tensor gate = gate_any.contiguous();
  const at::Tensor up = up_any.defined() ? up_any.contiguous() : up_any;
  Tensors out = {computed(activation, gate, up)};
  attach("gated", {gate, up}, out, {gate, up},
         [activation](const Tensors& saved, const Tensors& grads, const Needs&) -> Tensors {
           if (!grads[0].defined()) {
             return Tensors(2);
           }
           const Kernels::GatedGradients result = {
               at::empty_like(saved[0]), saved[1].defined() ? at::empty_like(saved[1]) : at::Tensor()};
           kernels_for(saved[0]).gated_backward(activation, result, saved[0], saved[1], grads[0]);
           return {result.dgate, result.dup};
         },
         {.again = [activation](const Tensors& saved) -> Tensors {
           return {computed(activation, saved[0], saved[1])};
         }});
  return out[0];
}

at::Tensor gated_halves(Activation activation, const at::Tensor& gate_up_any) {
  TORCH_CHECK(gate_up_any.dim() > 0 && gate_up_any.size(-1) % 2 == 0, "gated_halves: a tensor of shape ",
              gate_up_any.sizes(), " has no halves");
  const auto of = [activation](const at::Tensor& gate_up) -> Tensors {
    const Halves halves = halves_of(gate_up);
    return {computed(activation, halves.gate, halves.up)};
  };
  const at::Tensor gate_up = gate_up_any.contiguous();
  Tensors out = of(gate_up);
  attach("gated_halves", {gate_up}, out, {gate_up},
         [activation](const Tensors& saved, const Tensors& grads, const Needs&) -> Tensors {
           if (!grads[0].defined()) {
             return Tensors(1);
           }
           const at::Tensor dgate_up = at::empty_like(saved[0]);
           const Halves in = halves_of(saved[0]);
           const Halves gradients = halves_of(dgate_up);
           kernels_for(in.gate).gated_backward(activation, {gradients.gate, gradients.up}, in.gate, in.up,
                                               grads[0]);
           return {dgate_up};
         },
         {.again = [of](const Tensors& saved) { return of(saved[0]); }});
  return out[0];
}

}  // namespace ndmesh::nn
