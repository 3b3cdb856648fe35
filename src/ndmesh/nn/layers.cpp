#include <ATen/TensorOperators.h>

#include "ndmesh/nn/decoder.h"
#include "ndmesh/nn/functional.h"
#include "ndmesh/nn/parameter.h"

namespace ndmesh::nn {

Linear::Linear(std::int64_t in, std::int64_t out, bool with_bias, at::ScalarType dtype) {
  weight = register_parameter("weight", unmaterialised({out, in}, dtype));
  if (with_bias) {
    bias = register_parameter("bias", unmaterialised({out}, dtype));
  }
}

at::Tensor Linear::forward(const at::Tensor& x) const {
  return linear(x, weight, bias);
}

RmsNorm::RmsNorm(std::int64_t size, double eps_, at::ScalarType dtype) : eps(eps_) {
  weight = register_parameter("weight", unmaterialised({size}, dtype));
}

at::Tensor RmsNorm::forward(const at::Tensor& x) const {
  return rms_norm(x, weight, eps);
}

Embedding::Embedding(std::int64_t vocab, std::int64_t hidden, at::ScalarType dtype) {
  weight = register_parameter("weight", unmaterialised({vocab, hidden}, dtype));
}

at::Tensor Embedding::forward(const at::Tensor& ids_BS) const {
  return embed(weight, ids_BS);
}

Attention::Attention(const model::ModelSpec& spec, at::ScalarType dtype) : head_dim(spec.head_dim) {
  const std::int64_t queries = spec.heads * head_dim;
  const std::int64_t keys = spec.kv_heads * head_dim;
  q_proj = register_module("q_proj", std::make_shared<Linear>(spec.hidden, queries, spec.qkv_bias, dtype));
  k_proj = register_module("k_proj", std::make_shared<Linear>(spec.hidden, keys, spec.qkv_bias, dtype));
  v_proj = register_module("v_proj", std::make_shared<Linear>(spec.hidden, keys, spec.qkv_bias, dtype));
  if (spec.qk_norm) {
    q_norm = register_module("q_norm", std::make_shared<RmsNorm>(head_dim, spec.norm_eps, dtype));
    k_norm = register_module("k_norm", std::make_shared<RmsNorm>(head_dim, spec.norm_eps, dtype));
  }
  o_proj = register_module("o_proj", std::make_shared<Linear>(queries, spec.hidden, spec.output_bias, dtype));
}

at::Tensor Attention::forward(const at::Tensor& x_BSH, const RotaryTable::Tables& rope, KvCache* cache,
                              std::int64_t layer) {
  return pass(x_BSH,
              [this, rope, cache, layer](const at::Tensor& x) { return attend(x, rope, cache, layer); });
}

at::Tensor Attention::attend(const at::Tensor& x_BSH, const RotaryTable::Tables& rope, KvCache* cache,
                             std::int64_t layer) const {
  const at::Tensor x = column_in(x_BSH);
  const auto heads = [&](const at::Tensor& flat) {
    return flat.view({flat.size(0), flat.size(1), -1, head_dim});
  };
  at::Tensor q = heads(q_proj->forward(x));
  at::Tensor k = heads(k_proj->forward(x));
  at::Tensor v = heads(v_proj->forward(x));
  if (q_norm) {
    q = q_norm->forward(q);
    k = k_norm->forward(k);
  }
  q = rotate(q, rope.cos_SD2, rope.sin_SD2);
  k = rotate(k, rope.cos_SD2, rope.sin_SD2);
  std::int64_t past = 0;
  if (cache != nullptr) {
    past = cache->length();
    std::tie(k, v) = cache->append(layer, k, v);
  }
  return row_out(o_proj->forward(attention(q, k, v, {.past = past}).flatten(2)));
}

Mlp::Mlp(const model::ModelSpec& spec, at::ScalarType dtype) {
  gate_proj =
      register_module("gate_proj", std::make_shared<Linear>(spec.hidden, spec.ffn, spec.mlp_bias, dtype));
  up_proj = register_module("up_proj", std::make_shared<Linear>(spec.hidden, spec.ffn, spec.mlp_bias, dtype));
  down_proj =
      register_module("down_proj", std::make_shared<Linear>(spec.ffn, spec.hidden, spec.mlp_bias, dtype));
}

at::Tensor Mlp::forward(const at::Tensor& x_BSH) {
  return pass(x_BSH, [this](const at::Tensor& x_in) {
    const at::Tensor x = column_in(x_in);
    return row_out(down_proj->forward(swiglu(gate_proj->forward(x), up_proj->forward(x))));
  });
}

}  // namespace ndmesh::nn
