#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>

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
/// Rows from `rows` on are padding.
class WeightGradient {
 public:
  WeightGradient(const at::Tensor& weight_VH, std::int64_t rows, bool one_chunk)
      : dtype_(weight_VH.scalar_type()) {
    const MemoryScope scope(MemoryCategory::buffers);
    const at::ScalarType sum_dtype = one_chunk ? dtype_ : wide_dtype(dtype_);
    whole_ = at::empty(weight_VH.sizes(), weight_VH.options().dtype(sum_dtype));
    sum_ = whole_.narrow(0, 0, rows);
    whole_.narrow(0, rows, weight_VH.size(0) - rows).zero_();
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
    if (empty_) {
      sum_.zero_();
    }
    return whole_.to(dtype_);
  }

 private:
  at::ScalarType dtype_;
  at::Tensor whole_;
  at::Tensor sum_;  ///< its rows that are no padding
  bool empty_ = true;
};

/// Logits of a chunk, capped where the model caps them, in buffers that all chunks share.
class Logits {
 public:
  Logits(const at::Tensor& x_TH, const at::Tensor& weight_VH, std::int64_t rows,
         std::optional<double> softcap)
      : weight_VH_(weight_VH), softcap_(softcap) {
    const MemoryScope scope(MemoryCategory::logits);
    buffer_TV_ = at::empty({rows, weight_VH.size(0)}, x_TH.options());
    if (softcap) {
      slope_TV_ = at::empty_like(buffer_TV_);
    }
  }

  at::Tensor of(const at::Tensor& x_TH) {
    at::Tensor logits = buffer_TV_.narrow(0, 0, x_TH.size(0));
    kernels_for(x_TH).multiply(logits, x_TH, weight_VH_.t(), false);
    if (softcap_) {
      at::Tensor tanh = slope_TV_.narrow(0, 0, x_TH.size(0));
      at::tanh_out(tanh, logits.div_(*softcap_));
      at::mul_out(logits, tanh, at::scalar_tensor(*softcap_, logits.options()));
    }
    return logits;
  }

  /// Turns the gradient of the capped logits into that of the products, in place: d cap * tanh(z / cap) / dz is
  /// 1 - tanh^2.
  void through_cap(at::Tensor& dlogits) {
    if (softcap_) {
      dlogits.mul_(slope_TV_.narrow(0, 0, dlogits.size(0)).square_().neg_().add_(1));
    }
  }

 private:
  const at::Tensor& weight_VH_;
  std::optional<double> softcap_;
  at::Tensor buffer_TV_;
  at::Tensor slope_TV_;  ///< tanh(z / cap)
};

/// Of the rows of all parts, [3, T].
at::Tensor combined(const at::Tensor& parts_P3T) {
  const at::Tensor largest = parts_P3T.select(1, 0).amax(0);
  const at::Tensor total = (parts_P3T.select(1, 1) * (parts_P3T.select(1, 0) - largest).exp()).sum(0);
  return at::stack({largest, total, parts_P3T.select(1, 2).sum(0)});
}

/// Targets as places in a part of the vocabulary: from `rows` on where they lie in another; `ignored` stays.
at::Tensor local_targets(const at::Tensor& targets, const VocabularyPart& part, std::int64_t rows) {
  const at::Tensor local = targets - part.first;
  const at::Tensor elsewhere = local.lt(0).logical_or(local.ge(rows));
  return at::where(targets.eq(ignored), targets, local.masked_fill(elsewhere, rows));
}

struct Request {
  HeadOptions options;
  bool want_dx;
  bool want_dweight;
};

Result run(const at::Tensor& x_TH, const at::Tensor& padded_weight, const at::Tensor& targets_T,
           const Request& request) {
  const std::int64_t tokens = x_TH.size(0);
  const bool backward = request.want_dx || request.want_dweight;
  const Kernels& kernels = kernels_for(x_TH);
  Result result;
  at::Tensor sum = at::zeros({}, x_TH.options().dtype(at::kDouble));
  const VocabularyPart& part = request.options.vocabulary;
  const std::int64_t rows = part.gather ? part.rows : padded_weight.size(0);
  const at::Tensor weight_VH = padded_weight.narrow(0, 0, rows);
  const std::int64_t chunk = request.options.chunk;
  Logits all_logits(x_TH, weight_VH, std::min(chunk, tokens), request.options.softcap);
  result.dx_TH = request.want_dx ? at::empty_like(x_TH) : at::Tensor();
  std::optional<WeightGradient> dweight;
  if (request.want_dweight) {
    dweight.emplace(padded_weight, rows, tokens <= chunk);
  }
  for (std::int64_t begin = 0; begin < tokens; begin += chunk) {
    const std::int64_t length = std::min(chunk, tokens - begin);
    const at::Tensor x = x_TH.narrow(0, begin, length);
    at::Tensor targets = targets_T.narrow(0, begin, length);
    at::Tensor logits = all_logits.of(x);
    at::Tensor statistics_3T;
    if (part.gather) {
      targets = local_targets(targets, part, rows);
      statistics_3T = combined(part.gather(kernels.logit_statistics(logits, targets)));
    }
    sum += kernels.cross_entropy(logits, targets, {request.options.scale, backward, statistics_3T});
    if (!backward) {
      continue;
    }
    all_logits.through_cap(logits);
    if (request.want_dx) {
      at::Tensor dx = result.dx_TH.narrow(0, begin, length);
      kernels.multiply(dx, logits, weight_VH, false);
    }
    if (request.want_dweight) {
      dweight->add(logits, x);
    }
  }
  result.loss = (sum * request.options.scale).to(wide_dtype(x_TH.scalar_type()));
  result.dweight_VH = request.want_dweight ? dweight->finish() : at::Tensor();
  return result;
}

}  // namespace

at::Tensor head_loss(const at::Tensor& x_BSH, const at::Tensor& weight_VH, const at::Tensor& targets_BS,
                     const HeadOptions& options) {
  TORCH_CHECK(options.chunk > 0, "head_loss: a chunk of ", options.chunk, " tokens; at least 1");
  TORCH_CHECK(std::isfinite(options.scale), "head_loss: scale ", options.scale,
              " is not a number to multiply by");
  TORCH_CHECK(options.softcap.value_or(1) > 0, "head_loss: softcap ", options.softcap.value_or(0),
              "; above 0");
  TORCH_CHECK(x_BSH.sizes().slice(0, x_BSH.dim() - 1) == targets_BS.sizes(), "head_loss: targets of shape ",
              targets_BS.sizes(), " for hidden states of shape ", x_BSH.sizes());
  check_ids(targets_BS, options.vocabulary.gather ? options.vocabulary.of : weight_VH.size(0), "target",
            ignored);
  TORCH_CHECK(options.vocabulary.rows <= weight_VH.size(0), "head_loss: ", options.vocabulary.rows,
              " rows of the vocabulary in a weight of ", weight_VH.size(0));
  const bool want_dx = at::GradMode::is_enabled() && x_BSH.requires_grad();
  const bool want_dweight = at::GradMode::is_enabled() && weight_VH.requires_grad();
  Result result;
  {
    const WithoutAutograd plain;
    result = run(x_BSH.reshape({-1, x_BSH.size(-1)}), weight_VH, targets_BS.reshape({-1}),
                 {options, want_dx, want_dweight});
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
