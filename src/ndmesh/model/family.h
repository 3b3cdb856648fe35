#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ndmesh::model {

/// What one `model_type` of Transformers (4.57) means: the values that absent keys take, and which keys it
/// reads at all. A key that a family does not read (attention_bias under mistral, say) has no effect there
/// and none here.
struct Family {
  enum class Window {
    none,      ///< reads no window key
    always,    ///< `sliding_window` holds for every layer, unless null
    switched,  ///< `use_sliding_window`, from layer `max_window_layers` on, or as `layer_types` says
  };

  std::string_view name;
  std::string_view architecture;
  std::int64_t vocab, hidden, ffn, layers, heads;
  std::optional<std::int64_t> kv_heads;  ///< nothing: as many as heads
  std::optional<std::int64_t> head_dim;  ///< nothing: hidden / heads
  std::int64_t max_positions;
  std::optional<std::int64_t> bos_token, eos_token;
  Window window;
  bool always_qkv_bias;
  bool reads_attention_bias;
  bool reads_mlp_bias;
  bool qk_norm;
};

/// Nothing when the family is not built.
const Family* find_family(std::string_view model_type);

}  // namespace ndmesh::model
