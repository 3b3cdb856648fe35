#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ndmesh::model {

/// What one `model_type` of Transformers (4.57) means: the values that absent keys take, and which keys it
/// reads at all. A key that a family does not read (attention_bias under mistral, say) has no effect there
/// and none here.
struct Family {
  /// Which layers have `sliding_window`.
  enum class Window {
    none,         ///< reads no window key
    every,        ///< all
    from_layer,   ///< those from `max_window_layers` on, or as `layer_types` says
    alternating,  ///< all but each `window_period`-th, or as `layer_types` says
  };
  /// How routed experts are spelt.
  enum class Experts { none, mixtral, qwen, deepseek, gpt_oss };
  /// Spelling of keys that every family has.
  struct Keys {
    std::string_view hidden = "hidden_size";
    std::string_view ffn = "intermediate_size";
    std::string_view layers = "num_hidden_layers";
    std::string_view heads = "num_attention_heads";
    std::string_view positions = "max_position_embeddings";
    std::string_view norm_eps = "rms_norm_eps";
    std::string_view activation = "hidden_act";
  };

  std::string_view name;
  std::string_view architecture;
  bool runs = false;  ///< nn/ has its modules; the others are planned only
  Keys keys = {};

  std::int64_t vocab = 0, hidden = 0, ffn = 0, layers = 0, heads = 0;
  bool reads_kv_heads = true;                           ///< false: as many as heads
  std::optional<std::int64_t> kv_heads = std::nullopt;  ///< nothing: as many as heads
  bool reads_head_dim = true;                           ///< false: hidden / heads
  std::optional<std::int64_t> head_dim = std::nullopt;  ///< nothing: hidden / heads
  std::int64_t max_positions = 0;
  std::optional<std::int64_t> bos_token = std::nullopt, eos_token = std::nullopt;
  std::optional<std::int64_t> pad_token = std::nullopt;
  double norm_eps = 1e-6;
  double rope_theta = 10000.0;
  std::string_view activation = "silu";
  bool tied = false;

  Window window = Window::none;
  bool window_switch = false;  ///< only under `use_sliding_window`
  std::optional<std::int64_t> sliding_window = std::nullopt;
  std::int64_t window_period = 0;

  bool always_qkv_bias = false;
  bool reads_qkv_bias = false;  ///< key `qkv_bias`, true when absent
  bool reads_attention_bias = false;
  bool attention_bias = false;  ///< of q, k, v and o, when the key is absent or not read
  bool reads_mlp_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;
  bool qk_norm_whole = false;

  bool layer_norm = false;
  bool unit_offset_norm = false;
  bool gated = true;
  bool learned_positions = false;
  bool fused_qkv = false;
  bool fused_gate_up = false;
  bool pre_norms = true;
  bool post_norms = false;
  bool attention_sinks = false;

  bool scaled_embedding = false;
  bool reads_multipliers = false;  ///< granite's four
  bool reads_softcaps = false;
  std::optional<double> attention_softcap = std::nullopt, logits_softcap = std::nullopt;
  std::optional<double> query_pre_attn_scalar = std::nullopt;  ///< nothing: reads no such key
  std::optional<double> rope_local_theta = std::nullopt;       ///< nothing: reads no such key
  bool reads_rotary_factor = false;
  bool usual_dropout = false;  ///< gpt2: 0.1 in three places when the keys are absent

  Experts experts = Experts::none;
  std::int64_t expert_count = 0, experts_per_token = 0, expert_ffn = 0;
  std::int64_t dense_layers = 0;  ///< deepseek: how many come first
  bool router_bias = false;
  std::int64_t shared_experts = 0;  ///< deepseek: how many; qwen: their width
};

/// The family that a `model_type` names ("gemma3" is the text model of it); nothing when it is not built.
const Family* find_family(std::string_view model_type);

/// Families whose models the runtime has, in the order of supported_families.
std::vector<std::string> runnable_families();

}  // namespace ndmesh::model
