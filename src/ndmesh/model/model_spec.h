#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ndmesh/base/dtype.h"

namespace ndmesh::model {

/// What a parameter is to the model. Strategies and layouts read the role, never the name.
enum class Role {
  embedding,         ///< input table [vocab, hidden]
  query,             ///< q_proj: weight [heads * head_dim, hidden], bias [heads * head_dim]
  key,               ///< k_proj: [kv_heads * head_dim, hidden]
  value,             ///< v_proj: as key
  attention_output,  ///< o_proj: [hidden, heads * head_dim]
  gate,              ///< gate_proj: [ffn, hidden]
  up,                ///< up_proj: [ffn, hidden]
  down,              ///< down_proj: [hidden, ffn]
  norm,              ///< RMSNorm over hidden: [hidden]
  head_norm,         ///< q_norm, k_norm, over each head: [head_dim]
  head,              ///< lm_head [vocab, hidden]; absent when tied to the embedding
};

/// "embedding", "attention_output", ...: as above.
std::string_view name_of(Role role);

struct ParameterSpec {
  std::string name;                 ///< Hugging Face name, as in the checkpoint
  std::vector<std::int64_t> shape;  ///< global shape
  Role role = Role::norm;
  bool bias = false;        ///< the bias of the linear with that role
  std::int64_t layer = -1;  ///< decoder layer, or -1 for embedding, final norm and head

  std::int64_t elements() const;
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

/// A decoder-only transformer as plain values: built from config.json or a preset, read by planner, runtime
/// and checkpoint. Knows nothing of tensors, devices or meshes.
struct ModelSpec {
  std::string family;  ///< `model_type`: llama, mistral, qwen2, qwen3
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
  std::optional<std::int64_t> sliding_window;  ///< tokens; set only where every layer uses it
  bool tied = false;                           ///< head and embedding are one parameter
  bool qkv_bias = false;
  bool output_bias = false;  ///< bias of o_proj
  bool mlp_bias = false;
  bool qk_norm = false;
  bool byte_tokens = false;               ///< tokens 0..255 are the bytes of a text (`ndmesh_tokens: bytes`)
  double initializer_range = 0.02;        ///< standard deviation of fresh matrices
  std::optional<std::int64_t> bos_token;  ///< starts a text; none when the tokens have no such mark
  std::vector<std::int64_t> eos_tokens;   ///< any of them ends a text
  std::optional<DType> stored_dtype;      ///< a hint: the files decide

  bool operator==(const ModelSpec&) const = default;

  /// Every parameter once, in the order of the model: embedding, layers, final norm, head (unless tied).
  std::vector<ParameterSpec> parameters() const;
  std::int64_t parameter_count() const;
};

}  // namespace ndmesh::model
