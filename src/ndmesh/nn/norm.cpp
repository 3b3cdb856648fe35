#include <ATen/Functions.h>

#include "ndmesh/nn/autograd.h"
#include "ndmesh/nn/functional.h"
#include "ndmesh/nn/kernels.h"

namespace ndmesh::nn {
namespace {

void check(const at::Tensor& x, const at::Tensor& weight) {
  TORCH_CHECK(x.dim() > 0 && weight.dim() == 1 && weight.size(0) == x.size(-1), "rms_norm: weight of shape ",
              weight.sizes(), " for x of shape ", x.sizes());
  TORCH_CHECK(weight.scalar_type() == x.scalar_type() && weight.is_contiguous(),
              "rms_norm: weight is a dense ", x.scalar_type(), " like x, not ", weight.scalar_type());
}

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  check(x, weight);
  Kernels::Normed result;
  {
    const WithoutAutograd plain;
    result = kernels_for(x).rms_norm(x, {}, weight, eps);
  }
  Tensors out = {result.normed};
  attach(
      "rms_norm", {x, weight}, out, {x, weight, result.rstd},
      [](const Tensors& saved, const Tensors& grads, const Needs& needs) -> Tensors {
        if (!grads[0].defined()) {
          return Tensors(2);
        }
        const Kernels::NormGradients gradients = kernels_for(saved[0]).rms_norm_backward(
            {saved[0], saved[1], saved[2], grads[0], {}}, needs(0), needs(1));
        return {gradients.dx, gradients.dweight};
      },
      [eps](const Tensors& saved) -> Tensors {
        const WithoutAutograd plain;
        return {kernels_for(saved[0]).rms_norm(saved[0], {}, saved[1], eps).normed};
      });
  return out[0];
}

std::pair<at::Tensor, at::Tensor> add_rms_norm(const at::Tensor& x, const at::Tensor& y,
                                               const at::Tensor& weight, double eps) {
  check(x, weight);
  TORCH_CHECK(x.sizes() == y.sizes() && x.scalar_type() == y.scalar_type(), "add_rms_norm: x of shape ",
              x.sizes(), " and y of shape ", y.sizes());
  Kernels::Normed result;
  {
    const WithoutAutograd plain;
    result = kernels_for(x).rms_norm(x, y, weight, eps);
  }
  Tensors out = {result.sum, result.normed};
  attach(
      "add_rms_norm", {x, y, weight}, out, {result.sum, weight, result.rstd},
      [](const Tensors& saved, const Tensors& grads, const Needs& needs) -> Tensors {
        const auto& [dsum, dnormed] = std::tie(grads[0], grads[1]);
        if (!dnormed.defined()) {
          return {dsum, dsum, {}};
        }
        const Kernels::NormGradients gradients = kernels_for(saved[0]).rms_norm_backward(
            {saved[0], saved[1], saved[2], dnormed, dsum}, needs(0) || needs(1), needs(2));
        return {gradients.dx, gradients.dx, gradients.dweight};
      },
      [eps](const Tensors& saved) -> Tensors {
        const WithoutAutograd plain;
        return {saved[0], kernels_for(saved[0]).rms_norm(saved[0], {}, saved[1], eps).normed};
      });
  return {out[0], out[1]};
}

}  // namespace ndmesh::nn
