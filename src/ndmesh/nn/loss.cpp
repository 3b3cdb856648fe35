#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <algorithm>
#include <cmath>

#include "ndmesh/base/memory_category.h"
#include "ndmesh/nn/autograd.h"
#include "ndmesh/nn/functional.h"
#include "ndmesh/nn/ids.h"
#include "ndmesh/nn/kernels.h"

namespace ndmesh::nn {
namespace {

struct Result {
  at::Tensor loss;  ///< []
  at::Tensor dx_TH;
  at::Tensor dweight_VH;
};

/// Adds the products of chunks up to the weight gradient. In bfloat16 several chunks are added in float32,
/// because a sum kept in bfloat16 would lose what is less than 1/256 of it; a lone chunk needs no addition.
class WeightGradient {
 public:
  WeightGradient(const at::Tensor& weight_VH, bool one_chunk) : dtype_(weight_VH.scalar_type()) {
    const MemoryScope scope(MemoryCategory::buffers);
    const at::ScalarType sum_dtype = one_chunk ? dtype_ : wide_dtype(dtype_);
    sum_ = at::empty(weight_VH.sizes(), weight_VH.options().dtype(sum_dtype));
  }

  void add(const at::Tensor& dlogits_TV, const at::Tensor& x_TH) {
    const MemoryScope scope(MemoryCategory::buffers);
    if (sum_.scalar_type() != dtype_) {
      const at::Tensor product = at::mm(dlogits_TV.t(), x_TH);
      empty_ ? sum_.copy_(product) : sum_.add_(product);
    } else {
      kernels_for(x_TH).multiply(sum_, dlogits_TV.t(), x_TH, !empty_);
    }
    empty_ = false;
  }

  at::Tensor finish() {
    const MemoryScope scope(MemoryCategory::buffers);
    return empty_ ? sum_.zero_().to(dtype_) : sum_.to(dtype_);
  }

 private:
  at::ScalarType dtype_;
  at::Tensor sum_;
  bool empty_ = true;
};

Result run(const at::Tensor& x_TH, const at::Tensor& weight_VH, const at::Tensor& targets_T, double scale,
           std::int64_t chunk, bool want_dx, bool want_dweight) {
  const std::int64_t tokens = x_TH.size(0);
  const std::int64_t rows = std::min(chunk, tokens);
  const Kernels& kernels = kernels_for(x_TH);
  Result result;
  at::Tensor sum = at::zeros({}, x_TH.options().dtype(at::kDouble));
  at::Tensor buffer_TV;
  {
    const MemoryScope scope(MemoryCategory::logits);
    buffer_TV = at::empty({rows, weight_VH.size(0)}, x_TH.options());
  }
  result.dx_TH = want_dx ? at::empty_like(x_TH) : at::Tensor();
  std::optional<WeightGradient> dweight;
  if (want_dweight) {
    dweight.emplace(weight_VH, tokens <= chunk);
  }
  for (std::int64_t begin = 0; begin < tokens; begin += chunk) {
    const std::int64_t length = std::min(chunk, tokens - begin);
    const at::Tensor x = x_TH.narrow(0, begin, length);
    at::Tensor logits = buffer_TV.narrow(0, 0, length);
    kernels.multiply(logits, x, weight_VH.t(), false);
    sum += kernels.cross_entropy(logits, targets_T.narrow(0, begin, length), scale, want_dx || want_dweight);
    if (want_dx) {
      at::Tensor dx = result.dx_TH.narrow(0, begin, length);
      kernels.multiply(dx, logits, weight_VH, false);
    }
    if (want_dweight) {
      dweight->add(logits, x);
    }
  }
  result.loss = (sum * scale).to(wide_dtype(x_TH.scalar_type()));
  result.dweight_VH = want_dweight ? dweight->finish() : at::Tensor();
  return result;
}

}  // namespace

at::Tensor head_loss(const at::Tensor& x_BSH, const at::Tensor& weight_VH, const at::Tensor& targets_BS,
                     double scale, std::int64_t chunk) {
  TORCH_CHECK(chunk > 0, "head_loss: a chunk of ", chunk, " tokens; at least 1");
  TORCH_CHECK(std::isfinite(scale), "head_loss: scale ", scale, " is not a number to multiply by");
  TORCH_CHECK(x_BSH.sizes().slice(0, x_BSH.dim() - 1) == targets_BS.sizes(), "head_loss: targets of shape ",
              targets_BS.sizes(), " for hidden states of shape ", x_BSH.sizes());
  check_ids(targets_BS, weight_VH.size(0), "target", ignored);
  const bool want_dx = at::GradMode::is_enabled() && x_BSH.requires_grad();
  const bool want_dweight = at::GradMode::is_enabled() && weight_VH.requires_grad();
  Result result;
  {
    const WithoutAutograd plain;
    result = run(x_BSH.reshape({-1, x_BSH.size(-1)}), weight_VH, targets_BS.reshape({-1}), scale, chunk,
                 want_dx, want_dweight);
    result.dx_TH = want_dx ? result.dx_TH.view(x_BSH.sizes()) : at::Tensor();
  }
  Tensors out = {result.loss};
  // The gradients are saved, not captured: autograd may then hand over the only reference instead of a copy.
  attach("head_loss", {x_BSH, weight_VH}, out, {result.dx_TH, result.dweight_VH},
         [](const Tensors& saved, const Tensors& grads, const Needs&) -> Tensors {
           const at::Tensor& dloss = grads[0];
           if (!dloss.defined()) {
             return Tensors(2);
           }
           if (dloss.is_cpu() && dloss.item<double>() == 1.0) {
             return saved;
           }
           const auto times = [&](const at::Tensor& t) { return t.defined() ? t * dloss : t; };
           return {times(saved[0]), times(saved[1])};
         });
  return out[0];
}

}  // namespace ndmesh::nn
