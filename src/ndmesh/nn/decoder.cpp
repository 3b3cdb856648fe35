#include "ndmesh/nn/decoder.h"

#include <ATen/TensorOperators.h>
#include <fmt/format.h>

#include "ndmesh/base/error.h"
#include "ndmesh/nn/functional.h"

namespace ndmesh::nn {

Block::Block(const model::ModelSpec& spec, std::int64_t layer_, at::ScalarType dtype) : layer(layer_) {
  const auto norm = [&] { return std::make_shared<RmsNorm>(spec.hidden, spec.norm_eps, dtype); };
  input_layernorm = register_module("input_layernorm", norm());
  self_attn = register_module("self_attn", std::make_shared<Attention>(spec, dtype));
  post_attention_layernorm = register_module("post_attention_layernorm", norm());
  mlp = register_module("mlp", std::make_shared<Mlp>(spec, dtype));
}

at::Tensor Block::forward(const at::Tensor& x_BSH, const RotaryTable::Tables& rope, KvCache* cache) {
  return pass(x_BSH, [this, rope, cache](const at::Tensor& x) {
    const RmsNorm& norm = *post_attention_layernorm;
    const auto [sum, normed] = add_rms_norm(
        x, self_attn->forward(input_layernorm->forward(x), rope, cache, layer), norm.weight, norm.eps);
    return sum + mlp->forward(normed);
  });
}

Trunk::Trunk(const model::ModelSpec& spec, at::ScalarType dtype) {
  embed_tokens = register_module("embed_tokens", std::make_shared<Embedding>(spec.vocab, spec.hidden, dtype));
  auto layers = register_module("layers", std::make_shared<torch::nn::Module>("layers"));
  for (std::int64_t layer = 0; layer < spec.layers; ++layer) {
    blocks.push_back(
        layers->register_module(std::to_string(layer), std::make_shared<Block>(spec, layer, dtype)));
  }
  norm = register_module("norm", std::make_shared<RmsNorm>(spec.hidden, spec.norm_eps, dtype));
}

Decoder::Decoder(const model::ModelSpec& spec, at::ScalarType dtype) : spec_(spec), rotary_(spec, dtype) {
  trunk_ = register_module("model", std::make_shared<Trunk>(spec, dtype));
  if (!spec.tied) {
    lm_head_ = register_module("lm_head", std::make_shared<Linear>(spec.hidden, spec.vocab, false, dtype));
  }
}

const at::Tensor& Decoder::head_weight() const {
  return lm_head_ ? lm_head_->weight : trunk_->embed_tokens->weight;
}

at::Tensor Decoder::hidden_states(const at::Tensor& ids_BS, KvCache* cache) {
  const std::int64_t past = cache != nullptr ? cache->length() : 0;
  const std::int64_t length = ids_BS.size(1);
  if (spec_.sliding_window && past + length > *spec_.sliding_window) {
    throw RunError(
        fmt::format("a sequence of {} tokens needs sliding_window {}, which is not built: at most {} tokens",
                    past + length, *spec_.sliding_window, *spec_.sliding_window));
  }
  const RotaryTable::Tables rope = rotary_.range(past, length);
  at::Tensor x_BSH = embed_out(trunk_->embed_tokens->forward(ids_BS));
  for (const std::shared_ptr<Block>& block : trunk_->blocks) {
    x_BSH = block->forward(x_BSH, rope, cache);
  }
  if (cache != nullptr) {
    cache->advance(length);
  }
  return loss_in(trunk_->norm->forward(x_BSH));
}

at::Tensor Decoder::loss(const at::Tensor& ids_BS, const at::Tensor& targets_BS, double scale,
                         std::int64_t loss_chunk) {
  return pass(ids_BS, [this, targets_BS, scale, loss_chunk](const at::Tensor& ids) {
    const at::Tensor x_BSH = hidden_states(ids, nullptr);
    return head_loss(x_BSH, head_weight(), targets_BS, scale, loss_chunk);
  });
}

at::Tensor Decoder::logits(const at::Tensor& ids_BS, KvCache* cache) {
  const c10::AutoGradMode mode(at::GradMode::is_enabled() && cache == nullptr);
  return pass(ids_BS, [this, cache](const at::Tensor& ids) {
    return linear(hidden_states(ids, cache), head_weight(), at::Tensor());
  });
}

}  // namespace ndmesh::nn
