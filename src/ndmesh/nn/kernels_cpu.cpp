#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "ndmesh/base/memory_category.h"
#include "ndmesh/nn/cpu_attention.h"
#include "ndmesh/nn/cpu_kernels.h"
#include "ndmesh/nn/cpu_matmul.h"
#include "ndmesh/nn/kernels.h"

namespace ndmesh::nn {
namespace {

/// Calls f(T{}) with the number type that `dtype` has in cpu_kernels.h.
template <typename F>
auto with_type(at::ScalarType dtype, const F& f) {
  switch (dtype) {
    case at::kDouble:
      return f(double{});
    case at::kFloat:
      return f(float{});
    case at::kBFloat16:
      return f(cpu::Bf16{});
    default:
      TORCH_CHECK(false, "operators compute in float64, float32 or bfloat16, not in ", dtype);
  }
}

template <typename T>
T* pointer(const at::Tensor& t) {
  return t.defined() ? static_cast<T*>(t.mutable_data_ptr()) : nullptr;
}

template <typename T>
const T* reader(const at::Tensor& t) {
  return t.defined() ? static_cast<const T*>(t.const_data_ptr()) : nullptr;
}

at::Tensor dense(const at::Tensor& t) {
  return t.defined() ? t.contiguous() : t;
}

/// Rows of gate or up, and how far apart they begin: dense, or the halves of one dense matrix.
std::int64_t rows_of(const at::Tensor& gate) {
  return gate.size(-1) == 0 ? 0 : gate.numel() / gate.size(-1);
}
std::int64_t distance_of_rows(const at::Tensor& gate) {
  return gate.is_contiguous() ? gate.size(-1) : 2 * gate.size(-1);
}

/// Runs a kernel over `rows` of `size` elements, on as many threads as the calling thread may use.
template <typename Kernel>
void run_rows(const Kernel& kernel, std::int64_t rows, std::int64_t size) {
  constexpr std::int64_t elements_a_task = 32768;
  const std::int64_t grain = std::max<std::int64_t>(1, elements_a_task / std::max<std::int64_t>(1, size));
  at::parallel_for(0, rows, grain, [&](std::int64_t begin, std::int64_t end) { kernel.run({begin, end}); });
}

/// Positions whose ids are 0 .. vocab - 1, sorted by their id, equal ids in order, and where each run of equal ids starts
/// (with the end as last).
struct IdRuns {
  std::vector<std::int64_t> order;
  std::vector<std::int64_t> starts;
};

IdRuns runs_of(const std::int64_t* ids, std::int64_t count, std::int64_t vocab) {
  IdRuns runs;
  runs.order.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    if (ids[i] >= 0 && ids[i] < vocab) {
      runs.order.push_back(i);
    }
  }
  std::sort(runs.order.begin(), runs.order.end(),
            [&](std::int64_t a, std::int64_t b) { return ids[a] != ids[b] ? ids[a] < ids[b] : a < b; });
  for (std::size_t at = 0; at < runs.order.size(); ++at) {
    if (at == 0 || ids[runs.order[at]] != ids[runs.order[at - 1]]) {
      runs.starts.push_back(static_cast<std::int64_t>(at));
    }
  }
  runs.starts.push_back(static_cast<std::int64_t>(runs.order.size()));
  return runs;
}

/// Whether libtorch's flash attention for CPUs computes what is asked.
bool flash_can(const Kernels::AttentionInputs& in, const AttentionOptions& options) {
  return options.softcap == 0 && (options.window == 0 || options.window >= in.k_BSKD.size(1));
}

std::optional<double> scale_of(const AttentionOptions& options) {
  return options.scale > 0 ? std::optional<double>(options.scale) : std::nullopt;
}

class CpuKernels final : public Kernels {
 public:
  void multiply(at::Tensor& out_MN, const at::Tensor& a_MK, const at::Tensor& b_KN, bool add) const override {
    if (blocks_can(a_MK, b_KN)) {
      blocked_matmul(out_MN, a_MK, b_KN, add);
    } else {
      composite_kernels().multiply(out_MN, a_MK, b_KN, add);
    }
  }

  Normed norm(const at::Tensor& x_any, const at::Tensor& y_any,
              const NormParameters& parameters) const override {
    const at::Tensor x = dense(x_any);
    const at::Tensor y = dense(y_any);
    const std::int64_t size = x.size(-1);
    const std::int64_t rows = size == 0 ? 0 : x.numel() / size;
    const at::TensorOptions wide = x.options().dtype(wide_dtype(x.scalar_type()));
    Normed result;
    result.sum = y.defined() ? at::empty_like(x) : at::Tensor();
    result.normed = at::empty_like(x);
    result.mean = parameters.kind == NormKind::layer ? at::empty({rows}, wide) : at::Tensor();
    result.rstd = at::empty({rows}, wide);
    with_type(x.scalar_type(), [&](auto tag) {
      using T = decltype(tag);
      using W = cpu::Wide<T>;
      run_rows(
          cpu::NormForward<T>{reader<T>(x), reader<T>(y), reader<T>(parameters.weight),
                              reader<T>(parameters.bias), pointer<T>(result.sum), pointer<T>(result.normed),
                              pointer<W>(result.mean), pointer<W>(result.rstd), size, parameters.eps,
                              static_cast<W>(weight_offset(parameters.kind))},
          rows, size);
    });
    return result;
  }

  NormGradients norm_backward(const NormBackward& in, bool want_dx, bool want_dweight) const override {
    const at::Tensor x = dense(in.x);
    const at::Tensor dnormed = dense(in.dnormed);
    const at::Tensor dsum = dense(in.dsum);
    const std::int64_t size = x.size(-1);
    const std::int64_t rows = in.rstd.numel();
    // Each block of rows sums its own part of dweight, so that the result does not depend on the threads.
    constexpr std::int64_t rows_a_block = 128;
    const std::int64_t blocks = (rows + rows_a_block - 1) / rows_a_block;
    const auto block_sums = [&](bool wanted) {
      const MemoryScope scope(MemoryCategory::workspace);
      return wanted ? at::zeros({blocks, size}, in.rstd.options()) : at::Tensor();
    };
    const at::Tensor dweights = block_sums(want_dweight);
    const at::Tensor dbiases = block_sums(want_dweight && in.kind == NormKind::layer);
    NormGradients result;
    result.dx = want_dx ? at::empty_like(x) : at::Tensor();
    with_type(x.scalar_type(), [&](auto tag) {
      using T = decltype(tag);
      using W = cpu::Wide<T>;
      const cpu::NormBackward<T> kernel{reader<T>(x),
                                        reader<T>(in.weight),
                                        reader<W>(in.mean),
                                        reader<W>(in.rstd),
                                        reader<T>(dnormed),
                                        reader<T>(dsum),
                                        pointer<T>(result.dx),
                                        nullptr,
                                        nullptr,
                                        size,
                                        static_cast<W>(weight_offset(in.kind))};
      at::parallel_for(0, blocks, 1, [&](std::int64_t begin, std::int64_t end) {
        cpu::NormBackward<T> part = kernel;
        for (std::int64_t block = begin; block < end; ++block) {
          part.dweight = dweights.defined() ? pointer<W>(dweights) + block * size : nullptr;
          part.dbias = dbiases.defined() ? pointer<W>(dbiases) + block * size : nullptr;
          part.run({block * rows_a_block, std::min(rows, (block + 1) * rows_a_block)});
        }
      });
    });
    const auto total = [&](const at::Tensor& sums) {
      const MemoryScope scope(MemoryCategory::buffers);
      return sums.defined() ? sums.sum(0).to(in.weight.scalar_type()) : at::Tensor();
    };
    result.dweight = total(dweights);
    result.dbias = total(dbiases);
    return result;
  }

  at::Tensor gated(Activation activation, const at::Tensor& gate, const at::Tensor& up) const override {
    at::Tensor out = at::empty(gate.sizes(), gate.options());
    with_type(gate.scalar_type(), [&](auto tag) {
      using T = decltype(tag);
      const std::int64_t width = gate.size(-1);
      run_rows(cpu::GatedForward<T>{reader<T>(gate), reader<T>(up), pointer<T>(out), width,
                                    distance_of_rows(gate), activation == Activation::gelu_tanh},
               rows_of(gate), width);
    });
    return out;
  }

  void gated_backward(Activation activation, const GatedGradients& out, const at::Tensor& gate,
                      const at::Tensor& up, const at::Tensor& dout_any) const override {
    const at::Tensor dout = dense(dout_any);
    with_type(gate.scalar_type(), [&](auto tag) {
      using T = decltype(tag);
      const std::int64_t width = gate.size(-1);
      run_rows(cpu::GatedBackward<T>{reader<T>(gate), reader<T>(up), reader<T>(dout), pointer<T>(out.dgate),
                                     pointer<T>(out.dup), width, distance_of_rows(gate),
                                     activation == Activation::gelu_tanh},
               rows_of(gate), width);
    });
  }

  at::Tensor rotate(const at::Tensor& x_any, const at::Tensor& cos_any, const at::Tensor& sin_any,
                    int sign) const override {
    const at::Tensor x = dense(x_any);
    const at::Tensor cos = dense(cos_any);
    const at::Tensor sin = dense(sin_any);
    at::Tensor out = at::empty_like(x);
    with_type(x.scalar_type(), [&](auto tag) {
      using T = decltype(tag);
      using W = cpu::Wide<T>;
      const std::int64_t row = x.size(2) * x.size(3);
      run_rows(cpu::Rotate<T>{reader<T>(x), reader<W>(cos), reader<W>(sin), pointer<T>(out), x.size(2),
                              x.size(3), cos.size(1), x.size(1), static_cast<W>(sign)},
               x.size(0) * x.size(1), row);
    });
    return out;
  }

  Attended attention(const AttentionInputs& in, const AttentionOptions& options) const override {
    if (tiles_can(in)) {
      return tiled_attention(in, options);
    }
    if (!flash_can(in, options)) {
      return composite_kernels().attention(in, options);
    }
    const std::int64_t queries = in.q_BSND.size(1);
    const bool from_start = options.past == 0;  // the kernel's own causal mask is aligned to the first key
    std::optional<at::Tensor> mask;
    if (!from_start && queries > 1) {
      mask = at::full({queries, options.past + queries}, -std::numeric_limits<double>::infinity(),
                      in.q_BSND.options())
                 .triu(options.past + 1);
    }
    auto [out, lse] = at::_scaled_dot_product_flash_attention_for_cpu(
        in.q_BSND.transpose(1, 2), in.k_BSKD.transpose(1, 2), in.v_BSKD.transpose(1, 2), 0.0, from_start,
        mask, scale_of(options));
    return {out.transpose(1, 2).contiguous(), lse};
  }

  AttentionInputs attention_backward(const AttentionInputs& in, const Attended& forward,
                                     const at::Tensor& dout_BSND,
                                     const AttentionOptions& options) const override {
    if (tiles_can(in)) {
      return tiled_attention_backward(in, forward, dout_BSND, options);
    }
    if (!flash_can(in, options)) {
      return composite_kernels().attention_backward(in, forward, dout_BSND, options);
    }
    auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        dout_BSND.contiguous().transpose(1, 2), in.q_BSND.transpose(1, 2), in.k_BSKD.transpose(1, 2),
        in.v_BSKD.transpose(1, 2), forward.out_BSND.transpose(1, 2), forward.lse_BNS, 0.0, true, {},
        scale_of(options));
    return {dq.transpose(1, 2).contiguous(), dk.transpose(1, 2).contiguous(),
            dv.transpose(1, 2).contiguous()};
  }

  at::Tensor embedding_gradient(const at::Tensor& ids_any, const at::Tensor& dout_any,
                                std::int64_t vocab) const override {
    const at::Tensor ids = dense(ids_any);
    const at::Tensor dout = dense(dout_any);
    const std::int64_t size = dout.size(-1);
    const std::int64_t* id = ids.const_data_ptr<std::int64_t>();
    at::Tensor dtable = at::zeros({vocab, size}, dout.options());
    const IdRuns runs = runs_of(id, ids.numel(), vocab);
    with_type(dout.scalar_type(), [&](auto tag) {
      using T = decltype(tag);
      const auto count = static_cast<std::int64_t>(runs.starts.size()) - 1;
      at::parallel_for(0, count, 16, [&](std::int64_t begin, std::int64_t end) {
        std::vector<cpu::Wide<T>> sum(static_cast<std::size_t>(size));
        const cpu::EmbeddingGradient<T> kernel{reader<T>(dout),    id,  runs.order.data(), sum.data(),
                                               pointer<T>(dtable), size};
        kernel.run(
            {runs.starts[static_cast<std::size_t>(begin)], runs.starts[static_cast<std::size_t>(end)]});
      });
    });
    return dtable;
  }

  at::Tensor logit_statistics(const at::Tensor& logits_TV, const at::Tensor& targets_any) const override {
    const at::Tensor targets = dense(targets_any);
    const std::int64_t rows = logits_TV.size(0);
    at::Tensor statistics_3T =
        at::empty({3, rows}, logits_TV.options().dtype(wide_dtype(logits_TV.scalar_type())));
    with_type(logits_TV.scalar_type(), [&](auto tag) {
      using T = decltype(tag);
      run_rows(cpu::LogitStatistics<T>{reader<T>(logits_TV), targets.const_data_ptr<std::int64_t>(),
                                       pointer<cpu::Wide<T>>(statistics_3T), rows, logits_TV.size(1)},
               rows, logits_TV.size(1));
    });
    return statistics_3T;
  }

  at::Tensor cross_entropy(at::Tensor& logits_TV, const at::Tensor& targets_any,
                           const CrossEntropyOptions& options) const override {
    const at::Tensor targets = dense(targets_any);
    std::vector<double> losses(static_cast<std::size_t>(targets.numel()));
    with_type(logits_TV.scalar_type(), [&](auto tag) {
      using T = decltype(tag);
      run_rows(cpu::CrossEntropy<T>{pointer<T>(logits_TV), targets.const_data_ptr<std::int64_t>(),
                                    reader<cpu::Wide<T>>(options.statistics_3T), losses.data(),
                                    logits_TV.size(0), logits_TV.size(1), options.scale, options.gradient},
               logits_TV.size(0), logits_TV.size(1));
    });
    return at::full({}, std::accumulate(losses.begin(), losses.end(), 0.0), at::kDouble);
  }
};

}  // namespace

const Kernels& cpu_kernels() {
  static const CpuKernels kernels;
  return kernels;
}

}  // namespace ndmesh::nn
