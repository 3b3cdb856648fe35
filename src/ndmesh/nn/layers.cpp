#include <ATen/TensorOperators.h>

#include "ndmesh/model/parameter_names.h"
#include "ndmesh/nn/decoder.h"
#include "ndmesh/nn/functional.h"
#include "ndmesh/nn/parameter.h"

namespace ndmesh::nn {

namespace {

/// The last part of a name: "q_proj" of "self_attn.q_proj".
std::string leaf(std::string_view name) {
  return std::string(name.substr(name.rfind('.') + 1));
}

/// Registers linears under the family's names.
class Linears {
 public:
  Linears(torch::nn::Module& parent, const model::ModelSpec& spec, at::ScalarType dtype)
      : parent_(parent), transposed_(model::names_of(spec.family).transposed), dtype_(dtype) {}

  std::shared_ptr<Linear> add(std::string_view name, std::int64_t in, std::int64_t out, bool bias) {
    const Linear::Shape shape = {in, out, bias, transposed_};
    return parent_.register_module(leaf(name), std::make_shared<Linear>(shape, dtype_));
  }

 private:
  torch::nn::Module& parent_;
  bool transposed_;
  at::ScalarType dtype_;
};

NormKind norm_kind(const model::ModelSpec& spec) {
  return spec.layer_norm         ? NormKind::layer
         : spec.unit_offset_norm ? NormKind::unit_offset_rms
                                 : NormKind::rms;
}

}  // namespace

Linear::Linear(const Shape& shape, at::ScalarType dtype) : transposed(shape.transposed) {
  const std::vector<std::int64_t> sizes =
      transposed ? std::vector{shape.in, shape.out} : std::vector{shape.out, shape.in};
  weight = register_parameter("weight", unmaterialised(sizes, dtype));
  if (shape.bias) {
    bias = register_parameter("bias", unmaterialised({shape.out}, dtype));
  }
}

at::Tensor Linear::forward(const at::Tensor& x) const {
  return linear(x, weight, bias, transposed);
}

at::Tensor Linear::forward(const at::Tensor& x, const Port& port) const {
  if (!port.attached()) {
    return forward(x);
  }
  const at::Tensor product = port(linear(x, weight, at::Tensor(), transposed));
  return bias.defined() ? add_bias(product, bias) : product;
}

Norm::Norm(const model::ModelSpec& spec, std::int64_t size, at::ScalarType dtype) {
  all.eps = spec.norm_eps;
  all.kind = norm_kind(spec);
  all.weight = register_parameter("weight", unmaterialised({size}, dtype));
  if (spec.layer_norm) {
    all.bias = register_parameter("bias", unmaterialised({size}, dtype));
  }
}

at::Tensor Norm::forward(const at::Tensor& x) const {
  return norm(x, all);
}

at::Tensor Norm::forward(const at::Tensor& x, const Port& mean) const {
  return mean.attached() ? norm_of_part(x, all, mean) : forward(x);
}

Embedding::Embedding(const Rows& rows, std::int64_t hidden, at::ScalarType dtype)
    : first_(rows.first), of_(rows.of > 0 ? rows.of : rows.count) {
  weight = register_parameter("weight", unmaterialised({rows.count, hidden}, dtype));
}

at::Tensor Embedding::forward(const at::Tensor& ids) const {
  return embed(weight, ids, first_, of_);
}

Attention::Attention(const model::ModelSpec& spec, const layout::ModelPart& part, at::ScalarType dtype)
    : head_dim_(spec.head_dim),
      queries_(part.heads * spec.head_dim),
      norms_whole_(spec.qk_norm_whole),
      scale_(spec.attention_scale()),
      softcap_(spec.attention_softcap.value_or(0)) {
  const model::ParameterNames& names = model::names_of(spec.family);
  const std::int64_t keys = part.kv_heads * head_dim_;
  Linears linears(*this, spec, dtype);
  if (spec.fused_qkv) {
    qkv_proj = linears.add(names.fused_qkv, spec.hidden, queries_ + 2 * keys, spec.qkv_bias);
  } else {
    q_proj = linears.add(names.query, spec.hidden, queries_, spec.qkv_bias);
    k_proj = linears.add(names.key, spec.hidden, keys, spec.qkv_bias);
    v_proj = linears.add(names.value, spec.hidden, keys, spec.qkv_bias);
  }
  if (spec.qk_norm) {
    const auto add_norm = [&](std::string_view name, std::int64_t width) {
      return register_module(leaf(name),
                             std::make_shared<Norm>(spec, norms_whole_ ? width : head_dim_, dtype));
    };
    q_norm = add_norm(names.query_norm, queries_);
    k_norm = add_norm(names.key_norm, keys);
  }
  o_proj = linears.add(names.attention_output, queries_, spec.hidden, spec.output_bias);
}

at::Tensor Attention::forward(const at::Tensor& x_BSH, const RotaryTable::Tables& rope, KvCache* cache,
                              std::int64_t layer) {
  return pass(x_BSH,
              [this, rope, cache, layer](const at::Tensor& x) { return attend(x, rope, cache, layer); });
}

at::Tensor Attention::normed_heads(const std::shared_ptr<Norm>& norm, const at::Tensor& flat) const {
  const auto heads = [&](const at::Tensor& t) { return t.view({t.size(0), t.size(1), -1, head_dim_}); };
  if (!norm) {
    return heads(flat);
  }
  return norms_whole_ ? heads(norm->forward(flat, heads_mean)) : norm->forward(heads(flat));
}

Attention::Heads Attention::project(const at::Tensor& x_BSH) const {
  at::Tensor q, k, v;
  if (qkv_proj) {
    std::tie(q, k, v) = split_qkv(qkv_proj->forward(x_BSH), queries_);
  } else {
    q = q_proj->forward(x_BSH);
    k = k_proj->forward(x_BSH);
    v = v_proj->forward(x_BSH);
  }
  return {normed_heads(q_norm, q), normed_heads(k_norm, k), normed_heads(nullptr, v)};
}

at::Tensor Attention::attend(const at::Tensor& x_BSH, const RotaryTable::Tables& rope, KvCache* cache,
                             std::int64_t layer) const {
  auto [q, k, v] = project(column_in(x_BSH));
  if (rope.cos_SD2.defined()) {
    q = rotate(q, rope.cos_SD2, rope.sin_SD2);
    k = rotate(k, rope.cos_SD2, rope.sin_SD2);
  }
  AttentionOptions options = {.scale = scale_, .softcap = softcap_};
  if (cache != nullptr) {
    options.past = cache->length();
    std::tie(k, v) = cache->append(layer, k, v);
  }
  return o_proj->forward(attention(q, k, v, options).flatten(2), row_out);
}

Mlp::Mlp(const model::ModelSpec& spec, const layout::ModelPart& part, at::ScalarType dtype)
    : activation_(spec.activation) {
  const model::ParameterNames& names = model::names_of(spec.family);
  Linears linears(*this, spec, dtype);
  if (spec.fused_gate_up) {
    gate_up_proj = linears.add(names.fused_gate_up, spec.hidden, 2 * part.ffn, spec.mlp_bias);
  } else {
    if (spec.gated) {
      gate_proj = linears.add(names.gate, spec.hidden, part.ffn, spec.mlp_bias);
    }
    up_proj = linears.add(names.up, spec.hidden, part.ffn, spec.mlp_bias);
  }
  down_proj = linears.add(names.down, part.ffn, spec.hidden, spec.mlp_bias);
}

at::Tensor Mlp::activated(const at::Tensor& x_BSH) const {
  if (gate_up_proj) {
    return gated_halves(activation_, gate_up_proj->forward(x_BSH));
  }
  if (gate_proj) {
    return gated(activation_, gate_proj->forward(x_BSH), up_proj->forward(x_BSH));
  }
  return gated(activation_, up_proj->forward(x_BSH), at::Tensor());
}

at::Tensor Mlp::forward(const at::Tensor& x_BSH) {
  return pass(x_BSH,
              [this](const at::Tensor& x) { return down_proj->forward(activated(column_in(x)), row_out); });
}

}  // namespace ndmesh::nn
