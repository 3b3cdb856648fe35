#include <ATen/Functions.h>

#include "ndmesh/nn/autograd.h"
#include "ndmesh/nn/functional.h"
#include "ndmesh/nn/kernels.h"

namespace ndmesh::nn {

at::Tensor rotate(const at::Tensor& x_BSND, const at::Tensor& cos_SD2, const at::Tensor& sin_SD2) {
  TORCH_CHECK(x_BSND.dim() == 4 && x_BSND.size(3) % 2 == 0, "rotate: x of shape ", x_BSND.sizes(),
              ", not batch, sequence, heads, an even head size");
  for (const at::Tensor& table : {cos_SD2, sin_SD2}) {
    TORCH_CHECK(table.dim() == 2 && table.size(0) == x_BSND.size(1) && 2 * table.size(1) <= x_BSND.size(3) &&
                    table.scalar_type() == wide_dtype(x_BSND.scalar_type()),
                "rotate: a ", table.scalar_type(), " table of shape ", table.sizes(), " for ",
                x_BSND.scalar_type(), " x of shape ", x_BSND.sizes());
  }
  Tensors out;
  {
    const WithoutAutograd plain;
    out = {kernels_for(x_BSND).rotate(x_BSND, cos_SD2, sin_SD2, 1)};
  }
  attach("rotate", {x_BSND}, out, {cos_SD2, sin_SD2},
         [](const Tensors& saved, const Tensors& grads, const Needs&) -> Tensors {
           return {grads[0].defined() ? kernels_for(grads[0]).rotate(grads[0], saved[0], saved[1], -1)
                                      : at::Tensor()};
         });
  return out[0];
}

}  // namespace ndmesh::nn
