#include "ndmesh/nn/decoder.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <fmt/format.h>

#include <cmath>

#include "ndmesh/base/error.h"
#include "ndmesh/model/parameter_names.h"
#include "ndmesh/nn/functional.h"

namespace ndmesh::nn {
namespace {

/// "model.layers." is module "layers" of module "model".
struct Path {
  std::string parent;
  std::string child;
};

Path path_of(std::string_view name) {
  const std::size_t dot = name.find('.');
  const std::string_view rest = name.substr(dot + 1);
  return {std::string(name.substr(0, dot)), std::string(rest.substr(0, rest.find('.')))};
}

/// Transformers rounds gemma's factor to the model's dtype; granite's is a plain number.
double embedding_multiplier(const model::ModelSpec& spec, at::ScalarType dtype) {
  if (!spec.scaled_embedding) {
    return spec.embedding_multiplier;
  }
  const double root = std::sqrt(static_cast<double>(spec.hidden));
  return at::scalar_tensor(root, at::TensorOptions().dtype(dtype)).item<double>();
}

at::Tensor times(const at::Tensor& x, double factor) {
  return factor == 1.0 ? x : scaled(x, factor);
}

at::Tensor normed_if(const std::shared_ptr<Norm>& norm, const at::Tensor& x) {
  return norm ? norm->forward(x) : x;
}

}  // namespace

Block::Block(const model::ModelSpec& spec, const layout::ModelPart& part, std::int64_t layer_,
             at::ScalarType dtype)
    : layer(layer_), residual_multiplier_(spec.residual_multiplier) {
  const model::ParameterNames& names = model::names_of(spec.family);
  const auto norm = [&](bool has, std::string_view name) {
    return has ? register_module(std::string(name), std::make_shared<Norm>(spec, spec.hidden, dtype))
               : nullptr;
  };
  attention_norm = norm(spec.pre_norms, names.attention_norm);
  self_attn =
      register_module(path_of(names.attention_output).parent, std::make_shared<Attention>(spec, part, dtype));
  attention_post_norm = norm(spec.post_norms, names.attention_post_norm);
  mlp_norm = norm(spec.pre_norms, names.mlp_norm);
  mlp = register_module(path_of(names.mlp).parent, std::make_shared<Mlp>(spec, part, dtype));
  mlp_post_norm = norm(spec.post_norms, names.mlp_post_norm);
}

at::Tensor Block::forward(const at::Tensor& x_BSH, const RotaryTable::Tables& rope, KvCache* cache) {
  return pass(x_BSH, [this, rope, cache](const at::Tensor& x) {
    const auto to_add = [this](const std::shared_ptr<Norm>& post_norm, const at::Tensor& out) {
      return times(normed_if(post_norm, out), residual_multiplier_);
    };
    const at::Tensor attended =
        to_add(attention_post_norm, self_attn->forward(normed_if(attention_norm, x), rope, cache, layer));
    if (!mlp_norm) {
      const at::Tensor sum = x + attended;
      return sum + to_add(mlp_post_norm, mlp->forward(sum));
    }
    const auto [sum, normed] = add_norm(x, attended, mlp_norm->all);
    return sum + to_add(mlp_post_norm, mlp->forward(normed));
  });
}

Trunk::Trunk(const model::ModelSpec& spec, const layout::ModelPart& part, at::ScalarType dtype) {
  const model::ParameterNames& names = model::names_of(spec.family);
  const auto table = [&](std::string_view name, const Embedding::Rows& rows) {
    return register_module(path_of(name).child, std::make_shared<Embedding>(rows, spec.hidden, dtype));
  };
  if (part.embeds || (part.has_head && spec.tied)) {
    embed_tokens = table(names.embedding, {part.vocabulary_rows, part.vocabulary.start, spec.vocab});
  }
  if (part.embeds && spec.learned_positions) {
    positions = table(names.positions, {spec.max_positions});
  }
  const std::string layers_name = path_of(names.layer).child;
  auto layers = register_module(layers_name, std::make_shared<torch::nn::Module>(layers_name));
  for (std::int64_t layer = part.layers.start; layer < part.layers.start + part.layers.size; ++layer) {
    blocks.push_back(
        layers->register_module(std::to_string(layer), std::make_shared<Block>(spec, part, layer, dtype)));
  }
  if (part.has_head) {
    norm = register_module(path_of(names.final_norm).child, std::make_shared<Norm>(spec, spec.hidden, dtype));
  }
}

Decoder::Decoder(const model::ModelSpec& spec, const layout::ModelPart& part, at::ScalarType dtype)
    : spec_(spec),
      part_(part),
      dtype_(dtype),
      embedding_multiplier_(embedding_multiplier(spec, dtype)),
      rotary_(spec, dtype),
      local_rotary_(spec, dtype, true) {
  const model::ParameterNames& names = model::names_of(spec.family);
  trunk_ = register_module(path_of(names.embedding).parent, std::make_shared<Trunk>(spec, part, dtype));
  if (part.has_head && !spec.tied) {
    const Linear::Shape shape = {spec.hidden, part.vocabulary_rows};
    lm_head_ = register_module(std::string(names.head), std::make_shared<Linear>(shape, dtype));
  }
}

const at::Tensor& Decoder::head_weight() const {
  return lm_head_ ? lm_head_->weight : trunk_->embed_tokens->weight;
}

void Decoder::check_length(std::int64_t length) const {
  if (spec_.sliding_window && length > *spec_.sliding_window) {
    throw RunError(
        fmt::format("a sequence of {} tokens needs sliding_window {}, which is not built: at most {} tokens",
                    length, *spec_.sliding_window, *spec_.sliding_window));
  }
  if (spec_.learned_positions && length > spec_.max_positions) {
    throw RunError(fmt::format("a sequence of {} tokens is longer than the model's {} learned positions",
                               length, spec_.max_positions));
  }
}

RotaryTable::Tables Decoder::tables(bool local, std::int64_t start, std::int64_t length) {
  if (spec_.learned_positions) {
    return {};
  }
  return (local ? local_rotary_ : rotary_).range(start, length);
}

at::Tensor Decoder::embed(const at::Tensor& ids_BS, std::int64_t start) const {
  const at::Tensor tokens_BSH =
      embed_out(times(trunk_->embed_tokens->forward(ids_BS), embedding_multiplier_));
  if (!trunk_->positions) {
    return tokens_BSH;
  }
  const std::int64_t length = tokens_BSH.size(1);
  const std::int64_t first = start + part_.sequence_part * length;
  return tokens_BSH + trunk_->positions->forward(at::arange(first, first + length, ids_BS.options()));
}

at::Tensor Decoder::hidden_states(const at::Tensor& input, KvCache* cache) {
  const std::int64_t past = cache != nullptr ? cache->length() : 0;
  const std::int64_t length = input.size(1) * (part_.embeds ? 1 : part_.sequence_parts);
  check_length(past + length);
  at::Tensor x_BSH = part_.embeds ? embed(input, past) : input;
  for (const std::shared_ptr<Block>& block : trunk_->blocks) {
    const bool local = spec_.rope_local_theta && spec_.is_windowed(block->layer);
    x_BSH = block->forward(x_BSH, tables(local, past, length), cache);
  }
  if (cache != nullptr) {
    cache->advance(length);
  }
  return part_.has_head ? loss_in(times(trunk_->norm->forward(x_BSH), 1.0 / spec_.logits_scaling)) : x_BSH;
}

at::Tensor Decoder::loss_of(const at::Tensor& x_BSH, const LossRequest& request) const {
  HeadOptions options = {.scale = request.scale, .chunk = request.chunk, .softcap = spec_.logits_softcap};
  if (vocabulary.attached()) {
    options.vocabulary = {part_.vocabulary.start, part_.vocabulary.size, spec_.vocab, vocabulary};
  }
  return head_loss(x_BSH, head_weight(), request.targets_BS, options);
}

at::Tensor Decoder::forward(const at::Tensor& input, const LossRequest& request) {
  return pass(input, [this, request](const at::Tensor& x) {
    const at::Tensor x_BSH = hidden_states(x, nullptr);
    return part_.has_head ? loss_of(x_BSH, request) : x_BSH;
  });
}

at::Tensor Decoder::logits(const at::Tensor& ids_BS, KvCache* cache) {
  const c10::AutoGradMode mode(at::GradMode::is_enabled() && cache == nullptr);
  return pass(ids_BS, [this, cache](const at::Tensor& ids) {
    const at::Tensor logits_BSV = linear(hidden_states(ids, cache), head_weight(), at::Tensor());
    const auto& cap = spec_.logits_softcap;
    return cap ? at::tanh(logits_BSV / *cap) * *cap : logits_BSV;
  });
}

}  // namespace ndmesh::nn
