#include <ATen/Functions.h>

#include "ndmesh/nn/autograd.h"
#include "ndmesh/nn/functional.h"

namespace ndmesh::nn {
namespace {

/// A gradient that did not come is zero.
at::Tensor or_zeros(const at::Tensor& gradient, const at::Tensor& like, std::int64_t width) {
  if (gradient.defined()) {
    return gradient;
  }
  std::vector<std::int64_t> shape = like.sizes().vec();
  shape.back() = width;
  return at::zeros(shape, like.options());
}

}  // namespace

std::tuple<at::Tensor, at::Tensor, at::Tensor> split_qkv(const at::Tensor& fused, std::int64_t queries) {
  TORCH_CHECK(
      fused.dim() > 0 && queries > 0 && queries < fused.size(-1) && (fused.size(-1) - queries) % 2 == 0,
      "split_qkv: a tensor of shape ", fused.sizes(), " does not hold ", queries,
      " queries and as many keys as values");
  const std::int64_t keys = (fused.size(-1) - queries) / 2;
  Tensors out;
  {
    const WithoutAutograd plain;
    for (const at::Tensor& part : fused.split_with_sizes({queries, keys, keys}, -1)) {
      out.push_back(part.clone(at::MemoryFormat::Contiguous));  // a view would keep all of `fused`
    }
  }
  attach("split_qkv", {fused}, out, {},
         [queries, keys](const Tensors&, const Tensors& grads, const Needs&) -> Tensors {
           const at::Tensor& some = grads[0].defined() ? grads[0] : grads[1].defined() ? grads[1] : grads[2];
           if (!some.defined()) {
             return Tensors(1);
           }
           return {at::cat({or_zeros(grads[0], some, queries), or_zeros(grads[1], some, keys),
                            or_zeros(grads[2], some, keys)},
                           -1)};
         });
  return {out[0], out[1], out[2]};
}

}  // namespace ndmesh::nn
