#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "ndmesh/layout/model_part.h"
#include "ndmesh/model/model_spec.h"
#include "ndmesh/nn/functional.h"
#include "ndmesh/nn/kv_cache.h"
#include "ndmesh/nn/ports.h"

/// The decoder-only transformer, put together from ModelSpec: kinds of norm and where they stand, activation,
/// fused or separate projections, multipliers and caps; all of it, or the part that one rank builds
/// (layout/model_part.h). Parameters have Hugging Face's names and the order of ModelSpec::parameters(). No
/// module here holds a collective; strategies act at the ports. Modules are made with parameters that have a
/// shape but no memory (nn/parameter.h): a strategy gives them memory, the initialiser or a checkpoint their
/// values.
namespace ndmesh::nn {

/// A parameter-holding linear, bias undefined when absent.
struct Linear : torch::nn::Module {
  struct Shape {
    std::int64_t in;
    std::int64_t out;
    bool bias = false;
    bool transposed = false;  ///< the weight is [in, out]
  };
  Linear(const Shape& shape, at::ScalarType dtype);
  at::Tensor forward(const at::Tensor& x) const;
  /// The product passes `port` before the bias is added: what ports add up over ranks has it once.
  at::Tensor forward(const at::Tensor& x, const Port& port) const;
  at::Tensor weight;
  at::Tensor bias;
  bool transposed;
};

/// The model's kind of norm over `size` numbers.
struct Norm : torch::nn::Module {
  Norm(const model::ModelSpec& spec, std::int64_t size, at::ScalarType dtype);
  at::Tensor forward(const at::Tensor& x) const;
  /// Where x is one of several equal parts: norm_of_part.
  at::Tensor forward(const at::Tensor& x, const Port& mean) const;
  NormParameters all;
};

/// Rotary tables of the positions 0 .. length - 1, computed in float64 and kept as float32 (float64 for a
/// float64 model), grown on demand. Frequencies and their scaling (none, linear, llama3) as in Transformers;
/// `local`: those of windowed layers where the model has them (gemma3).
class RotaryTable {
 public:
  RotaryTable(const model::ModelSpec& spec, at::ScalarType dtype, bool local = false);
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

/// Projections are apart or one matrix, as the family stores them.
struct Attention : torch::nn::Module, Unit {
  Attention(const model::ModelSpec& spec, const layout::ModelPart& part, at::ScalarType dtype);
  /// Undefined tables turn nothing (learned positions).
  at::Tensor forward(const at::Tensor& x_BSH, const RotaryTable::Tables& rope, KvCache* cache,
                     std::int64_t layer);
  Port column_in;   ///< what q, k and v read
  Port row_out;     ///< the product of o_proj, without its bias
  Port heads_mean;  ///< numbers whose mean is over all heads (norms over all heads)
  std::shared_ptr<Linear> q_proj, k_proj, v_proj;  ///< null when fused
  std::shared_ptr<Linear> qkv_proj;                ///< null unless fused
  std::shared_ptr<Linear> o_proj;
  std::shared_ptr<Norm> q_norm, k_norm;  ///< null unless spec.qk_norm

 private:
  struct Heads {
    at::Tensor q_BSND, k_BSKD, v_BSKD;
  };
  Heads project(const at::Tensor& x_BSH) const;
  at::Tensor normed_heads(const std::shared_ptr<Norm>& norm, const at::Tensor& flat) const;
  at::Tensor attend(const at::Tensor& x_BSH, const RotaryTable::Tables& rope, KvCache* cache,
                    std::int64_t layer) const;

  std::int64_t head_dim_;
  std::int64_t queries_;  ///< width of all query heads here
  bool norms_whole_;      ///< q_norm and k_norm are over all heads together
  double scale_;
  double softcap_;  ///< 0: none
};

/// With a gate or without, its matrices apart or one.
struct Mlp : torch::nn::Module, Unit {
  Mlp(const model::ModelSpec& spec, const layout::ModelPart& part, at::ScalarType dtype);
  at::Tensor forward(const at::Tensor& x_BSH);
  Port column_in;                        ///< what gate and up read
  Port row_out;                          ///< the product of down, without its bias
  std::shared_ptr<Linear> gate_proj;     ///< null when fused, and without a gate
  std::shared_ptr<Linear> up_proj;       ///< null when fused
  std::shared_ptr<Linear> gate_up_proj;  ///< null unless fused
  std::shared_ptr<Linear> down_proj;

 private:
  at::Tensor activated(const at::Tensor& x_BSH) const;

  Activation activation_;
};

struct Block : torch::nn::Module, Unit {
  Block(const model::ModelSpec& spec, const layout::ModelPart& part, std::int64_t layer,
        at::ScalarType dtype);
  at::Tensor forward(const at::Tensor& x_BSH, const RotaryTable::Tables& rope, KvCache* cache);
  std::shared_ptr<Norm> attention_norm, mlp_norm;            ///< in front; null without spec.pre_norms
  std::shared_ptr<Norm> attention_post_norm, mlp_post_norm;  ///< behind; null without spec.post_norms
  std::shared_ptr<Attention> self_attn;
  std::shared_ptr<Mlp> mlp;
  std::int64_t layer;

 private:
  double residual_multiplier_;
};

/// Rows first .. first + rows - 1 of a table; what is looked up elsewhere is zero.
struct Embedding : torch::nn::Module {
  struct Rows {
    std::int64_t count;  ///< with padding
    std::int64_t first = 0;
    std::int64_t of = 0;  ///< the whole table; 0: `count`
  };
  Embedding(const Rows& rows, std::int64_t hidden, at::ScalarType dtype);
  at::Tensor forward(const at::Tensor& ids) const;
  at::Tensor weight;

 private:
  std::int64_t first_;
  std::int64_t of_;
};

/// What Hugging Face calls `model` or `transformer`: everything but the head.
struct Trunk : torch::nn::Module {
  Trunk(const model::ModelSpec& spec, const layout::ModelPart& part, at::ScalarType dtype);
  std::shared_ptr<Embedding> embed_tokens;  ///< null unless the part embeds, or its head is tied to it
  std::shared_ptr<Embedding> positions;     ///< null unless learned, and the part embeds
  std::vector<std::shared_ptr<Block>> blocks;
  std::shared_ptr<Norm> norm;  ///< null unless the part has the head
};

/// The model, or a part of it; the root unit of sharding: `enter` sees its input, `leave` its output.
class Decoder : public torch::nn::Module, public Unit {
 public:
  /// `dtype`: float64, float32 or bfloat16.
  Decoder(const model::ModelSpec& spec, at::ScalarType dtype)
      : Decoder(spec, layout::whole_part(spec), dtype) {}
  Decoder(const model::ModelSpec& spec, const layout::ModelPart& part, at::ScalarType dtype);

  /// What the head makes of hidden states.
  struct LossRequest {
    at::Tensor targets_BS;  ///< whole sequences; may hold nn::ignored
    double scale = 1;
    std::int64_t chunk = 256;  ///< tokens whose logits exist at a time
  };
  /// What the part makes of its input, differentiable. The input: ids_BS where the part embeds, else the hidden states
  /// that the part before gave. The output: hidden states, or, where the part has the head, the sum of token
  /// losses times `scale`. RunError when a token is outside of the vocabulary, or the sequence is longer than
  /// the model's sliding window (which is not built; up to that length it has no effect) or its learned
  /// positions.
  at::Tensor forward(const at::Tensor& input, const LossRequest& request);

  /// forward of the whole model.
  at::Tensor loss(const at::Tensor& ids_BS, const at::Tensor& targets_BS, double scale,
                  std::int64_t loss_chunk) {
    return forward(ids_BS, {targets_BS, scale, loss_chunk});
  }

  /// Logits of every position, of a whole model; with a cache, ids continue what it holds, and there are no
  /// gradients. For generation, evaluation and tests.
  at::Tensor logits(const at::Tensor& ids_BS, KvCache* cache = nullptr);

  const model::ModelSpec& spec() const { return spec_; }
  const layout::ModelPart& part() const { return part_; }
  at::ScalarType dtype() const { return dtype_; }
  const std::vector<std::shared_ptr<Block>>& blocks() const { return trunk_->blocks; }
  /// [rows, hidden]; the embedding's own when tied.
  const at::Tensor& head_weight() const;

  Port embed_out;   ///< the embedded tokens, before learned positions are added
  Port loss_in;     ///< the normed hidden states that the head reads
  Port vocabulary;  ///< statistics of the logits of a part of the vocabulary (functional.h: head_loss)

 private:
  void check_length(std::int64_t length) const;
  /// Tables for the blocks: undefined with learned positions.
  RotaryTable::Tables tables(bool local, std::int64_t start, std::int64_t length);
  /// The tokens as the first block reads them; `start`: the position of the first.
  at::Tensor embed(const at::Tensor& ids_BS, std::int64_t start) const;
  at::Tensor hidden_states(const at::Tensor& input, KvCache* cache);
  at::Tensor loss_of(const at::Tensor& x_BSH, const LossRequest& request) const;

  model::ModelSpec spec_;
  layout::ModelPart part_;
  at::ScalarType dtype_;
  double embedding_multiplier_;
  RotaryTable rotary_;
  RotaryTable local_rotary_;
  std::shared_ptr<Trunk> trunk_;
  std::shared_ptr<Linear> lm_head_;  ///< null when tied
};

}  // namespace ndmesh::nn
