#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ndmesh/base/dtype.h"

namespace ndmesh::model {

/// What a parameter is to the model. Strategies and layouts read the role, never the name. Shapes are [out,
/// in], as Hugging Face stores linears; ParameterSpec says where a checkpoint has them otherwise.
enum class Role {
  embedding,  ///< input table [vocab, hidden]
  query,  ///< q_proj: weight [heads * head_dim, hidden], bias [heads * head_dim]; MLA: q_b_proj, in a latent
  key,    ///< k_proj: [kv_heads * head_dim, hidden]
  value,  ///< v_proj: as key
  attention_output,  ///< o_proj: [hidden, heads * head_dim]
  gate,              ///< gate_proj: [ffn, hidden]
  up,                ///< up_proj: [ffn, hidden]
  down,              ///< down_proj: [hidden, ffn]
  norm,              ///< RMSNorm or LayerNorm over hidden (or over a latent): weight and, for LayerNorm, bias
  head_norm,         ///< q_norm, k_norm: over each head [head_dim], or over all heads together (olmo2)
  head,              ///< lm_head [vocab, hidden]; absent when tied to the embedding
  positions,         ///< learned positions [max_positions, hidden]
  fused_qkv,         ///< query, key and value in one matrix
  fused_gate_up,     ///< gate and up in one matrix [2 * ffn, hidden]
  latent_down,       ///< MLA: hidden to a latent (q_a_proj, kv_a_proj_with_mqa); every tp rank holds it whole
  latent_up,  ///< MLA: a latent to keys and values of each head (kv_b_proj) [heads * (nope + value), kv_rank]
  router,     ///< [experts, hidden], and the gate [1, hidden] of a shared expert; every rank holds it whole
  expert_gate,     ///< of one routed expert: [moe_ffn, hidden]
  expert_up,       ///< as expert_gate
  expert_gate_up,  ///< both in one matrix: [2 * moe_ffn, hidden]
  expert_down,     ///< [hidden, moe_ffn]
  sinks,           ///< one number for each query head
  mtp_projection,  ///< of a multi-token prediction layer: [hidden, 2 * hidden]
  unspecified,     ///< what an estimated model has beyond its estimated shape: [n]
};

/// "embedding", "attention_output", ...: as above.
std::string_view name_of(Role role);
/// Whether it belongs to routed experts, which ep and etp cut instead of tp.
bool is_expert(Role role);

struct ParameterSpec {
  std::string name;                 ///< Hugging Face name, as in the checkpoint
  std::vector<std::int64_t> shape;  ///< global shape
  Role role = Role::norm;
  bool bias = false;         ///< the bias of the linear with that role
  std::int64_t layer = -1;   ///< decoder layer, or -1 for the two ends; MTP layers follow the decoder's
  std::int64_t expert = -1;  ///< routed expert, or -1; 0 when stacked
  bool stacked = false;      ///< one tensor holds all experts, counted by dim 0 (gpt_oss)
  bool transposed = false;   ///< [in, out] instead of [out, in] (gpt2, gpt_oss)
  /// Fused matrices whose parts (q, k, v or gate, up) lie one after another along the out dim: their sizes.
  /// Empty where parts are interleaved by head or by row, so that a cut into whole heads or rows is a cut of
  /// each part.
  std::vector<std::int64_t> segments = {};

  std::int64_t elements() const;
  /// The dim of the linear's outputs, and that of its inputs (of a weight).
  std::int64_t out_dim() const { return (stacked ? 1 : 0) + (transposed && !bias ? 1 : 0); }
  std::int64_t in_dim() const { return (stacked ? 1 : 0) + (transposed ? 0 : 1); }
};

/// A parameter of one layer with all that are like it there: the routed experts of a layer have theirs alike,
/// so one entry stands for all of them.
struct LayerParameter {
  ParameterSpec spec;       ///< as in ModelSpec::parameters(); expert 0's where it stands for several
  std::int64_t copies = 1;  ///< experts that have one

  std::int64_t elements() const { return copies * spec.elements(); }
};

/// What tells layers apart: layers of one kind have the same parameters (but for names) and the same work.
struct LayerKind {
  bool moe = false;
  bool windowed = false;
  bool mtp = false;  ///< multi-token prediction
  bool operator==(const LayerKind&) const = default;
};

/// How rotary frequencies are stretched beyond the trained length (config.json `rope_scaling`).
struct RopeScaling {
  enum class Kind { none, linear, llama3 };
  Kind kind = Kind::none;
  double factor = 1.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  std::int64_t original_max_positions = 8192;

  bool operator==(const RopeScaling&) const = default;
};

/// What lies between the products of a feed-forward.
enum class Activation { silu, gelu_tanh };

/// Multi-head latent attention (DeepSeek): queries, keys and values come from low-rank latents.
struct LatentAttention {
  std::int64_t query_rank = 0;  ///< q_lora_rank; 0: queries come from hidden directly
  std::int64_t kv_rank = 0;     ///< kv_lora_rank
  std::int64_t nope_dim = 0;    ///< of a head's query and key, without positions
  std::int64_t rope_dim = 0;    ///< of a head's query, and of the one key that all heads share
  std::int64_t value_dim = 0;   ///< of a head's value

  bool operator==(const LatentAttention&) const = default;
};

/// The routed experts of a MoE layer.
struct Experts {
  std::int64_t count = 0;       ///< in one layer
  std::int64_t per_token = 0;   ///< top k
  std::int64_t ffn = 0;         ///< width of one expert
  std::int64_t shared_ffn = 0;  ///< width of all shared experts together; 0: none
  bool shared_gate = false;     ///< qwen2_moe: a gate [1, hidden] on the shared expert
  bool router_bias = false;     ///< trained (gpt_oss), or a correction that no gradient reaches (deepseek_v3)
  bool bias = false;            ///< biases in each expert (gpt_oss)
  std::vector<bool> layers =
      {};  ///< by decoder layer, whether it is MoE, empty: all are; the others are dense, of width `ffn`

  bool operator==(const Experts&) const = default;
};

/// A decoder-only transformer as plain values: built from config.json or a preset, read by planner, runtime
/// and checkpoint. Knows nothing of tensors, devices or meshes.
struct ModelSpec {
  std::string family;  ///< `model_type`; "estimate" for a model known by its size only
  std::int64_t vocab = 0;
  std::int64_t hidden = 0;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t ffn = 0;
  std::int64_t max_positions = 0;
  double norm_eps = 1e-6;
  double rope_theta = 10000.0;
  RopeScaling rope_scaling;
  std::optional<std::int64_t> sliding_window;  ///< tokens; used by the layers of `windowed`
  std::vector<bool> windowed;  ///< by layer, whether its attention is windowed; empty: all are
  bool tied = false;           ///< head and embedding are one parameter
  bool qkv_bias = false;
  bool output_bias = false;  ///< bias of o_proj
  bool mlp_bias = false;
  bool qk_norm = false;
  bool byte_tokens = false;               ///< tokens 0..255 are the bytes of a text (`ndmesh_tokens: bytes`)
  double initializer_range = 0.02;        ///< standard deviation of fresh matrices
  std::optional<std::int64_t> bos_token;  ///< starts a text; none when the tokens have no such mark
  std::vector<std::int64_t> eos_tokens;   ///< any of them ends a text
  std::optional<DType> stored_dtype;      ///< a hint: the files decide

  // What planner and checkpoint know beyond what runs (job::check_trainable refuses the rest by name).
  bool layer_norm = false;         ///< LayerNorm with bias instead of RMSNorm
  bool gated = true;               ///< SwiGLU, GeGLU; false: up, activation, down
  bool learned_positions = false;  ///< a table [max_positions, hidden] instead of rotary positions
  bool fused_qkv = false;          ///< query, key and value are one parameter
  bool pre_norms = true;           ///< a norm in front of attention and of feed-forward
  bool post_norms = false;         ///< a norm behind each: gemma's beside, olmo2's instead of those in front
  bool attention_sinks = false;    ///< gpt_oss
  std::optional<LatentAttention> latent;
  std::optional<Experts> experts;
  bool fused_gate_up = false;  ///< gate and up are one parameter (phi3)
  std::int64_t mtp_layers =
      0;  ///< multi-token prediction: layers behind the last, with a projection each; they share
          ///< the input table and the head
  std::int64_t unspecified_parameters = 0;  ///< beyond the estimated shape, so that the stated size is exact

  Activation activation = Activation::silu;
  bool unit_offset_norm = false;  ///< RMSNorm multiplies by 1 + weight (gemma)
  bool qk_norm_whole = false;     ///< qk_norm is over all heads together (olmo2)
  double rotary_factor = 1.0;     ///< part of each head that rotary positions turn (partial_rotary_factor)
  std::optional<double> rope_local_theta = {};       ///< of windowed layers, never stretched (gemma3)
  std::optional<double> query_pre_attn_scalar = {};  ///< gemma: scores are multiplied by its power of -1/2
  std::optional<double> attention_multiplier = {};   ///< granite: scores are multiplied by it
  std::optional<double> attention_softcap = {};      ///< scores s become cap * tanh(s / cap)
  std::optional<double> logits_softcap = {};         ///< likewise
  bool scaled_embedding = false;               ///< embedded tokens are multiplied by sqrt(hidden) (gemma)
  double embedding_multiplier = 1.0;           ///< of embedded tokens (granite), as are the two that follow
  double residual_multiplier = 1.0;            ///< of what attention and feed-forward add
  double logits_scaling = 1.0;                 ///< logits are divided by it
  std::optional<std::int64_t> pad_token = {};  ///< carried along; it is a token like others here

  /// What the configuration asks for that the runtime does not have and that changes no size (an activation,
  /// a kind of rotary scaling, quantised weights): one sentence each, with its key. check_trainable refuses
  /// them.
  std::vector<std::string> planned_only = {};

  bool operator==(const ModelSpec&) const = default;

  /// Every parameter once, in the order of the model: embedding, layers, final norm, head (unless tied), MTP
  /// layers. One entry an expert, so there may be tens of thousands: planners walk layer_parameters instead.
  std::vector<ParameterSpec> parameters() const;
  /// Those of layer 0 .. total_layers() - 1, in the same order, routed experts once.
  std::vector<LayerParameter> layer_parameters(std::int64_t layer) const;
  /// Those of no layer: embedding, positions, final norm, head, unspecified.
  std::vector<ParameterSpec> end_parameters() const;

  std::int64_t total_layers() const { return layers + mtp_layers; }
  LayerKind layer_kind(std::int64_t layer) const {
    return {is_moe(layer), is_windowed(layer), layer >= layers};
  }

  std::int64_t parameter_count() const;
  /// Parameters that take part in one token: experts that it is not routed to left out.
  std::int64_t active_parameter_count() const;

  bool is_moe(std::int64_t layer) const;       ///< an MTP layer is what the last decoder layer is
  bool is_windowed(std::int64_t layer) const;  ///< has a window, shorter or not than the sequence
  bool estimated() const { return family == "estimate"; }
  /// What scores are multiplied by: 1 / sqrt(head_dim) unless the model says otherwise.
  double attention_scale() const;
  std::int64_t rotary_dim() const;   ///< numbers of each head that rotary positions turn: even
  std::int64_t query_width() const;  ///< heads * (head_dim, or nope + rope of latent attention)
  std::int64_t value_width() const;  ///< heads * (head_dim, or the value dim): what attention puts out
  /// Elements of keys and values that one token leaves in one layer's cache, before tp: 2 * kv_heads *
  /// head_dim, or the latent and the shared key of latent attention.
  std::int64_t kv_elements_per_token() const;
};

/// ModelSpec::parameter_count of sizes that may exceed 64 bits together.
double approximate_parameter_count(const ModelSpec& spec);

}  // namespace ndmesh::model
