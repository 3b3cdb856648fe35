#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <cmath>
#include <limits>

#include "ndmesh/base/memory_category.h"
#include "ndmesh/nn/functional.h"
#include "ndmesh/nn/kernels.h"

namespace ndmesh::nn {
namespace {

at::Tensor wide(const at::Tensor& t) {
  return t.to(wide_dtype(t.scalar_type()));
}

/// Repeats each key/value head for its queries, moves heads to the front: BSKD -> BNSD.
at::Tensor heads_first(const at::Tensor& k_BSKD, std::int64_t heads) {
  return wide(k_BSKD).repeat_interleave(heads / k_BSKD.size(2), 2).transpose(1, 2);
}

/// The gradient of heads_first: sums over the queries of each key/value head.
at::Tensor heads_last(const at::Tensor& dk_BNSD, const at::Tensor& k_BSKD) {
  const at::Tensor grouped = dk_BNSD.transpose(1, 2).unflatten(2, {k_BSKD.size(2), -1});
  return grouped.sum(3).to(k_BSKD.scalar_type()).contiguous();
}

double scale_of(const at::Tensor& q_BSND, const AttentionOptions& options) {
  return options.scale > 0 ? options.scale : 1.0 / std::sqrt(static_cast<double>(q_BSND.size(3)));
}

/// Scores before the mask; keys are heads_first.
at::Tensor raw_scores(const at::Tensor& q_BSND, const at::Tensor& k_BNSD, const AttentionOptions& options) {
  const at::Tensor raw =
      at::matmul(wide(q_BSND).transpose(1, 2), k_BNSD.transpose(2, 3)) * scale_of(q_BSND, options);
  return options.softcap > 0 ? at::tanh(raw / options.softcap) * options.softcap : raw;
}

at::Tensor masked(const at::Tensor& raw_BNSS, const AttentionOptions& options) {
  const at::Tensor all = at::ones({raw_BNSS.size(2), raw_BNSS.size(3)}, raw_BNSS.options().dtype(at::kBool));
  at::Tensor unseen = all.triu(options.past + 1);
  if (options.window > 0) {
    unseen = unseen.logical_or(all.tril(options.past - options.window));
  }
  return raw_BNSS.masked_fill(unseen, -std::numeric_limits<double>::infinity());
}

at::Tensor activated(Activation activation, const at::Tensor& gate) {
  return activation == Activation::silu ? at::silu(wide(gate)) : at::gelu(wide(gate), "tanh");
}

class CompositeKernels final : public Kernels {
 public:
  void multiply(at::Tensor& out_MN, const at::Tensor& a_MK, const at::Tensor& b_KN, bool add) const override {
    if (add) {
      out_MN.addmm_(a_MK, b_KN);
    } else {
      at::mm_out(out_MN, a_MK, b_KN);
    }
  }

  Normed norm(const at::Tensor& x, const at::Tensor& y, const NormParameters& parameters) const override {
    const bool layer = parameters.kind == NormKind::layer;
    const at::Tensor sum = y.defined() ? x + y : x;
    const at::Tensor mean = layer ? wide(sum).mean(-1, true) : at::Tensor();
    const at::Tensor s = layer ? wide(sum) - mean : wide(sum);
    const at::Tensor rstd = (s.square().mean(-1, true) + parameters.eps).rsqrt();
    at::Tensor normed = s * rstd * (wide(parameters.weight) + weight_offset(parameters.kind));
    if (parameters.bias.defined()) {
      normed = normed + wide(parameters.bias);
    }
    return {y.defined() ? sum : at::Tensor(), normed.to(x.scalar_type()),
            layer ? mean.flatten() : at::Tensor(), rstd.flatten()};
  }

  NormGradients norm_backward(const NormBackward& in, bool want_dx, bool want_dweight) const override {
    const bool layer = in.kind == NormKind::layer;
    const at::Tensor rstd = in.rstd.unsqueeze(1);
    const at::Tensor rows = wide(in.x).reshape({-1, in.x.size(-1)});
    const at::Tensor x_hat = (layer ? rows - in.mean.unsqueeze(1) : rows) * rstd;
    const at::Tensor dnormed = wide(in.dnormed).reshape(x_hat.sizes());
    NormGradients result;
    if (want_dx) {
      const at::Tensor direct = dnormed * (wide(in.weight) + weight_offset(in.kind));
      at::Tensor dx = direct - x_hat * (direct * x_hat).mean(1, true);
      if (layer) {
        dx = dx - direct.mean(1, true);
      }
      dx = (rstd * dx).view_as(in.x);
      result.dx = (in.dsum.defined() ? dx + wide(in.dsum) : dx).to(in.x.scalar_type());
    }
    const MemoryScope scope(MemoryCategory::buffers);
    if (want_dweight) {
      result.dweight = (dnormed * x_hat).sum(0).to(in.weight.scalar_type());
    }
    if (want_dweight && layer) {
      result.dbias = dnormed.sum(0).to(in.weight.scalar_type());
    }
    return result;
  }

  at::Tensor gated(Activation activation, const at::Tensor& gate, const at::Tensor& up) const override {
    const at::Tensor out = activated(activation, gate);
    return (up.defined() ? out * wide(up) : out).to(gate.scalar_type());
  }

  void gated_backward(Activation activation, const GatedGradients& out, const at::Tensor& gate_any,
                      const at::Tensor& up, const at::Tensor& dout_any) const override {
    const at::Tensor gate = wide(gate_any);
    const at::Tensor dout = wide(dout_any);
    const at::Tensor dactivated = up.defined() ? dout * wide(up) : dout;
    out.dgate.copy_(activation == Activation::silu ? at::silu_backward(dactivated, gate)
                                                   : at::gelu_backward(dactivated, gate, "tanh"));
    if (up.defined()) {
      at::Tensor(out.dup).copy_(dout * activated(activation, gate));
    }
  }

  at::Tensor rotate(const at::Tensor& x, const at::Tensor& cos_SD2, const at::Tensor& sin_SD2,
                    int sign) const override {
    const std::int64_t turned = 2 * cos_SD2.size(1);
    const auto halves = wide(x.narrow(-1, 0, turned)).chunk(2, -1);
    const at::Tensor cos = cos_SD2.unsqueeze(1);
    const at::Tensor sin = sin_SD2.unsqueeze(1) * sign;
    const at::Tensor rest = wide(x.narrow(-1, turned, x.size(-1) - turned));
    return at::cat({halves[0] * cos - halves[1] * sin, halves[1] * cos + halves[0] * sin, rest}, -1)
        .to(x.scalar_type());
  }

  Attended attention(const AttentionInputs& in, const AttentionOptions& options) const override {
    const std::int64_t heads = in.q_BSND.size(2);
    const at::Tensor s = masked(raw_scores(in.q_BSND, heads_first(in.k_BSKD, heads), options), options);
    const at::Tensor out = at::matmul(at::softmax(s, -1), heads_first(in.v_BSKD, heads));
    return {out.transpose(1, 2).to(in.q_BSND.scalar_type()).contiguous(), at::logsumexp(s, -1)};
  }

  AttentionInputs attention_backward(const AttentionInputs& in, const Attended& forward,
                                     const at::Tensor& dout_BSND,
                                     const AttentionOptions& options) const override {
    const std::int64_t heads = in.q_BSND.size(2);
    const at::Tensor k = heads_first(in.k_BSKD, heads);
    const at::Tensor raw = raw_scores(in.q_BSND, k, options);
    const at::Tensor p = (masked(raw, options) - forward.lse_BNS.unsqueeze(-1)).exp();
    const at::Tensor dout = wide(dout_BSND).transpose(1, 2);
    const at::Tensor along = (dout * wide(forward.out_BSND).transpose(1, 2)).sum(-1, true);
    at::Tensor ds = p * (at::matmul(dout, heads_first(in.v_BSKD, heads).transpose(2, 3)) - along);
    if (options.softcap > 0) {
      ds = ds * (1 - (raw / options.softcap).square());
    }
    ds = ds * scale_of(in.q_BSND, options);
    const at::Tensor dq = at::matmul(ds, k).transpose(1, 2);
    const at::Tensor dk = at::matmul(ds.transpose(2, 3), wide(in.q_BSND).transpose(1, 2));
    const at::Tensor dv = at::matmul(p.transpose(2, 3), dout);
    return {dq.to(in.q_BSND.scalar_type()).contiguous(), heads_last(dk, in.k_BSKD),
            heads_last(dv, in.v_BSKD)};
  }

  at::Tensor embedding_gradient(const at::Tensor& ids, const at::Tensor& dout,
                                std::int64_t vocab) const override {
    const at::Tensor rows = wide(dout).flatten(0, -2);
    const at::Tensor flat = ids.flatten();
    const at::Tensor elsewhere = flat.lt(0).logical_or(flat.ge(vocab));
    return at::zeros({vocab + 1, rows.size(1)}, rows.options())
        .index_add_(0, flat.masked_fill(elsewhere, vocab), rows)
        .narrow(0, 0, vocab)
        .to(dout.scalar_type());
  }

  at::Tensor logit_statistics(const at::Tensor& logits_TV, const at::Tensor& targets_T) const override {
    const std::int64_t vocab = logits_TV.size(1);
    const at::Tensor logits = wide(logits_TV);
    if (vocab == 0) {
      at::Tensor none = at::zeros({3, logits.size(0)}, logits.options());
      none[0].fill_(-std::numeric_limits<double>::infinity());
      return none;
    }
    const at::Tensor largest = logits.amax(1);
    const at::Tensor total = (logits - largest.unsqueeze(1)).exp().sum(1);
    const at::Tensor elsewhere = targets_T.lt(0).logical_or(targets_T.ge(vocab));
    const at::Tensor at_target = logits.gather(1, targets_T.clamp(0, vocab - 1).unsqueeze(1)).squeeze(1);
    return at::stack({largest, total, at_target.masked_fill(elsewhere, 0)});
  }

  at::Tensor cross_entropy(at::Tensor& logits_TV, const at::Tensor& targets_T,
                           const CrossEntropyOptions& options) const override {
    const at::Tensor valid = targets_T.ne(ignored);
    const at::Tensor found =
        options.statistics_3T.defined() ? options.statistics_3T : logit_statistics(logits_TV, targets_T);
    const at::Tensor log_sum = found[1].log() + found[0];
    const at::Tensor loss = (log_sum - found[2]).masked_fill(~valid, 0).sum(at::kDouble);
    if (options.gradient && logits_TV.size(1) > 0) {
      const at::Tensor column = at::arange(logits_TV.size(1), targets_T.options());
      const at::Tensor onehot = targets_T.unsqueeze(1).eq(column);
      const at::Tensor softmax = (wide(logits_TV) - log_sum.unsqueeze(1)).exp();
      logits_TV.copy_(
          ((softmax - onehot.to(softmax.scalar_type())) * options.scale).masked_fill(~valid.unsqueeze(1), 0));
    }
    return loss;
  }
};

}  // namespace

const Kernels& composite_kernels() {
  static const CompositeKernels kernels;
  return kernels;
}

}  // namespace ndmesh::nn
