#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include "ndmesh/base/memory_category.h"
#include "ndmesh/nn/autograd.h"
#include "ndmesh/nn/functional.h"
#include "ndmesh/nn/kernels.h"

namespace ndmesh::nn {
namespace {

void check(const at::Tensor& x, const NormParameters& parameters) {
  const auto check_one = [&](const char* what, const at::Tensor& t) {
    TORCH_CHECK(x.dim() > 0 && t.dim() == 1 && t.size(0) == x.size(-1), "norm: ", what, " of shape ",
                t.sizes(), " for x of shape ", x.sizes());
    TORCH_CHECK(t.scalar_type() == x.scalar_type() && t.is_contiguous(), "norm: ", what, " is a dense ",
                x.scalar_type(), " like x, not ", t.scalar_type());
  };
  check_one("weight", parameters.weight);
  TORCH_CHECK(parameters.bias.defined() == (parameters.kind == NormKind::layer),
              "norm: LayerNorm has a bias, RMSNorm has none");
  if (parameters.bias.defined()) {
    check_one("bias", parameters.bias);
  }
}

Kernels::Normed computed(const at::Tensor& x, const at::Tensor& y, const NormParameters& parameters) {
  const WithoutAutograd plain;
  return kernels_for(x).norm(x, y, parameters);
}

/// What both norms save, in order: what was normed, weight, bias, mean, rstd.
Tensors saved_of(const at::Tensor& x, const NormParameters& parameters, const Kernels::Normed& result) {
  return {x, parameters.weight, parameters.bias, result.mean, result.rstd};
}

at::Tensor normed_again(const Tensors& saved, double eps, NormKind kind) {
  return computed(saved[0], {}, {saved[1], saved[2], eps, kind}).normed;
}

Kernels::NormGradients gradients_of(const Tensors& saved, const at::Tensor& dnormed, const at::Tensor& dsum,
                                    NormKind kind, std::pair<bool, bool> wanted) {
  return kernels_for(saved[0]).norm_backward({saved[0], saved[1], saved[3], saved[4], dnormed, dsum, kind},
                                             wanted.first, wanted.second);
}

}  // namespace

at::Tensor norm(const at::Tensor& x, const NormParameters& parameters) {
  check(x, parameters);
  const Kernels::Normed result = computed(x, {}, parameters);
  Tensors out = {result.normed};
  const NormKind kind = parameters.kind;
  attach("norm", {x, parameters.weight, parameters.bias}, out, saved_of(x, parameters, result),
         [kind](const Tensors& saved, const Tensors& grads, const Needs& needs) -> Tensors {
           if (!grads[0].defined()) {
             return Tensors(3);
           }
           const auto [dx, dweight, dbias] =
               gradients_of(saved, grads[0], {}, kind, {needs(0), needs(1) || needs(2)});
           return {dx, dweight, dbias};
         },
         {.again = [eps = parameters.eps, kind](const Tensors& saved) -> Tensors {
           return {normed_again(saved, eps, kind)};
         }});
  return out[0];
}

at::Tensor norm_of_part(const at::Tensor& x, const NormParameters& parameters, const Port& mean) {
  check(x, parameters);
  TORCH_CHECK(parameters.kind != NormKind::layer, "norm_of_part: LayerNorm is not built");
  const at::ScalarType wide = wide_dtype(x.scalar_type());
  const double offset = weight_offset(parameters.kind);
  const Again normed = [wide, offset](const Tensors& saved) -> Tensors {
    const at::Tensor x_hat = saved[0].to(wide) * saved[2];
    return {(x_hat * (saved[1].to(wide) + offset)).to(saved[0].scalar_type())};
  };
  Tensors kept = {x, parameters.weight, {}};  // the third: 1 / the root of the mean square
  Tensors out;
  {
    const WithoutAutograd plain;
    kept[2] = (mean(x.to(wide).square().mean(-1, true)) + parameters.eps).rsqrt();
    out = normed(kept);
  }
  attach("norm of a part", {x, parameters.weight}, out, kept,
         [wide, offset, mean](const Tensors& saved, const Tensors& grads, const Needs& needs) -> Tensors {
           if (!grads[0].defined()) {
             return Tensors(2);
           }
           const at::Tensor x_hat = saved[0].to(wide) * saved[2];
           const at::Tensor dnormed = grads[0].to(wide);
           const at::Tensor direct = dnormed * (saved[1].to(wide) + offset);
           const at::Tensor along = mean((direct * x_hat).mean(-1, true));  // all ranks or none: needs or not
           Tensors result(2);
           if (needs(0)) {
             result[0] = (saved[2] * (direct - x_hat * along)).to(saved[0].scalar_type());
           }
           if (needs(1)) {
             const MemoryScope scope(MemoryCategory::buffers);
             result[1] = (dnormed * x_hat).flatten(0, -2).sum(0).to(saved[1].scalar_type());
           }
           return result;
         },
         {.again = normed});
  return out[0];
}

std::pair<at::Tensor, at::Tensor> add_norm(const at::Tensor& x, const at::Tensor& y,
                                           const NormParameters& parameters) {
  check(x, parameters);
  TORCH_CHECK(x.sizes() == y.sizes() && x.scalar_type() == y.scalar_type(), "add_norm: x of shape ",
              x.sizes(), " and y of shape ", y.sizes());
  const Kernels::Normed result = computed(x, y, parameters);
  Tensors out = {result.sum, result.normed};
  const NormKind kind = parameters.kind;
  attach("add_norm", {x, y, parameters.weight, parameters.bias}, out,
         saved_of(result.sum, parameters, result),
         [kind](const Tensors& saved, const Tensors& grads, const Needs& needs) -> Tensors {
           const auto& [dsum, dnormed] = std::tie(grads[0], grads[1]);
           if (!dnormed.defined()) {
             return {dsum, dsum, {}, {}};
           }
           const auto [dx, dweight, dbias] =
               gradients_of(saved, dnormed, dsum, kind, {needs(0) || needs(1), needs(2) || needs(3)});
           return {dx, dx, dweight, dbias};
         },
         {.again = [eps = parameters.eps, kind](const Tensors& saved) -> Tensors {
           return {saved[0], normed_again(saved, eps, kind)};
         }});
  return {out[0], out[1]};
}

}  // namespace ndmesh::nn
