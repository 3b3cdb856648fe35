#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include "ndmesh/nn/autograd.h"
#include "ndmesh/nn/functional.h"
#include "ndmesh/nn/kernels.h"

namespace ndmesh::nn {
namespace {

void check(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionOptions& options) {
  const std::int64_t past = options.past;
  TORCH_CHECK(q.dim() == 4 && k.dim() == 4 && k.sizes() == v.sizes() && q.size(0) == k.size(0) &&
                  q.size(3) == k.size(3) && k.size(2) > 0 && q.size(2) % k.size(2) == 0,
              "attention: q of shape ", q.sizes(), ", k ", k.sizes(), ", v ", v.sizes(),
              "; batch and head size agree, and heads are a multiple of key/value heads");
  TORCH_CHECK(past >= 0 && k.size(1) == past + q.size(1), "attention: ", k.size(1), " keys for ", past,
              " past and ", q.size(1), " new positions");
  TORCH_CHECK(options.scale >= 0 && options.softcap >= 0 && options.window >= 0, "attention: scale ",
              options.scale, ", softcap ", options.softcap, ", window ", options.window,
              "; none is negative");
  const bool differentiable =
      at::GradMode::is_enabled() && (q.requires_grad() || k.requires_grad() || v.requires_grad());
  TORCH_CHECK(past == 0 || !differentiable, "attention over past keys is for generation: it has no gradient");
}

}  // namespace

at::Tensor attention(const at::Tensor& q_BSND, const at::Tensor& k_BSKD, const at::Tensor& v_BSKD,
                     const AttentionOptions& options) {
  check(q_BSND, k_BSKD, v_BSKD, options);
  Kernels::Attended result;
  {
    const WithoutAutograd plain;
    result = kernels_for(q_BSND).attention({q_BSND, k_BSKD, v_BSKD}, options);
  }
  Tensors out = {result.out_BSND};
  attach("attention", {q_BSND, k_BSKD, v_BSKD}, out,
         {q_BSND, k_BSKD, v_BSKD, result.out_BSND, result.lse_BNS},
         [options](const Tensors& saved, const Tensors& grads, const Needs&) -> Tensors {
           if (!grads[0].defined()) {
             return Tensors(3);
           }
           const WithoutAutograd plain;
           const Kernels::AttentionInputs gradients = kernels_for(saved[0]).attention_backward(
               {saved[0], saved[1], saved[2]}, {saved[3], saved[4]}, grads[0], options);
           return {gradients.q_BSND, gradients.k_BSKD, gradients.v_BSKD};
         });
  return out[0];
}

}  // namespace ndmesh::nn
