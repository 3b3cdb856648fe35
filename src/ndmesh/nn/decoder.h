#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "ndmesh/model/model_spec.h"
#include "ndmesh/nn/kv_cache.h"
#include "ndmesh/nn/ports.h"

/// The decoder-only transformer. Parameters have Hugging Face's names and the order of
/// ModelSpec::parameters(). No module here holds a collective; strategies act at the ports. Modules are made
/// with parameters that have a shape but no memory (nn/parameter.h): a strategy gives them memory, the
/// initialiser or a checkpoint their values.
namespace ndmesh::nn {

/// A parameter-holding linear, bias undefined when absent.
struct Linear : torch::nn::Module {
  Linear(std::int64_t in, std::int64_t out, bool with_bias, at::ScalarType dtype);
  at::Tensor forward(const at::Tensor& x) const;
  at::Tensor weight;
  at::Tensor bias;
};

struct RmsNorm : torch::nn::Module {
  RmsNorm(std::int64_t size, double eps, at::ScalarType dtype);
  at::Tensor forward(const at::Tensor& x) const;
  at::Tensor weight;
  double eps;
};

/// Rotary tables of the positions 0 .. length - 1, computed in float64 and kept as float32 (float64 for a
/// float64 model), grown on demand. Frequencies and their scaling (none, linear, llama3) as in Transformers.
class RotaryTable {
 public:
  RotaryTable(const model::ModelSpec& spec, at::ScalarType dtype);
  struct Tables {
    at::Tensor cos_SD2;
    at::Tensor sin_SD2;
  };
  Tables range(std::int64_t start, std::int64_t length);

 private:
  at::ScalarType dtype_;
  at::Tensor frequencies_;  ///< radians per position, [D2]
  Tables all_;
};

struct Attention : torch::nn::Module, Unit {
  Attention(const model::ModelSpec& spec, at::ScalarType dtype);
  at::Tensor forward(const at::Tensor& x_BSH, const RotaryTable::Tables& rope, KvCache* cache,
                     std::int64_t layer);
  Port column_in;  ///< what q, k and v read
  Port row_out;    ///< what o_proj gives
  std::shared_ptr<Linear> q_proj, k_proj, v_proj, o_proj;
  std::shared_ptr<RmsNorm> q_norm, k_norm;  ///< null unless spec.qk_norm
  std::int64_t head_dim;

 private:
  at::Tensor attend(const at::Tensor& x_BSH, const RotaryTable::Tables& rope, KvCache* cache,
                    std::int64_t layer) const;
};

struct Mlp : torch::nn::Module, Unit {
  Mlp(const model::ModelSpec& spec, at::ScalarType dtype);
  at::Tensor forward(const at::Tensor& x_BSH);
  Port column_in;  ///< what gate and up read
  Port row_out;    ///< what down gives
  std::shared_ptr<Linear> gate_proj, up_proj, down_proj;
};

struct Block : torch::nn::Module, Unit {
  Block(const model::ModelSpec& spec, std::int64_t layer, at::ScalarType dtype);
  at::Tensor forward(const at::Tensor& x_BSH, const RotaryTable::Tables& rope, KvCache* cache);
  std::shared_ptr<RmsNorm> input_layernorm, post_attention_layernorm;
  std::shared_ptr<Attention> self_attn;
  std::shared_ptr<Mlp> mlp;
  std::int64_t layer;
};

struct Embedding : torch::nn::Module {
  Embedding(std::int64_t vocab, std::int64_t hidden, at::ScalarType dtype);
  at::Tensor forward(const at::Tensor& ids_BS) const;
  at::Tensor weight;
};

/// What Hugging Face calls `model`: everything but the head.
struct Trunk : torch::nn::Module {
  Trunk(const model::ModelSpec& spec, at::ScalarType dtype);
  std::shared_ptr<Embedding> embed_tokens;
  std::vector<std::shared_ptr<Block>> blocks;
  std::shared_ptr<RmsNorm> norm;
};

/// The whole model; the root unit of sharding: `enter` sees the ids, `leave` the loss or the logits.
class Decoder : public torch::nn::Module, public Unit {
 public:
  /// `dtype`: float64, float32 or bfloat16.
  Decoder(const model::ModelSpec& spec, at::ScalarType dtype);

  /// Sum of token losses times `scale`, differentiable; logits exist `loss_chunk` tokens at a time.
  /// targets_BS may hold nn::ignored. RunError when a token is outside of the vocabulary, or the sequence is
  /// longer than the model's sliding window (which is not built; up to that length it has no effect).
  at::Tensor loss(const at::Tensor& ids_BS, const at::Tensor& targets_BS, double scale,
                  std::int64_t loss_chunk);

  /// Logits of every position; with a cache, ids continue what it holds, and there are no gradients. For
  /// generation, evaluation and tests.
  at::Tensor logits(const at::Tensor& ids_BS, KvCache* cache = nullptr);

  const model::ModelSpec& spec() const { return spec_; }
  const std::vector<std::shared_ptr<Block>>& blocks() const { return trunk_->blocks; }
  /// [vocab, hidden]; the embedding's own when tied.
  const at::Tensor& head_weight() const;

  Port embed_out;  ///< the embedded tokens
  Port loss_in;    ///< the normed hidden states that the head reads

 private:
  at::Tensor hidden_states(const at::Tensor& ids_BS, KvCache* cache);

  model::ModelSpec spec_;
  RotaryTable rotary_;
  std::shared_ptr<Trunk> trunk_;
  std::shared_ptr<Linear> lm_head_;  ///< null when tied
};

}  // namespace ndmesh::nn
