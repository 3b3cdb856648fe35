#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "ndmesh/base/error.h"
#include "ndmesh/model/family.h"
#include "ndmesh/model/key_reader.h"
#include "ndmesh/model/model_spec.h"

namespace ndmesh::model {

// Generous, and such that no number of elements of one parameter leaves 64 bits.
inline constexpr IntegerRange hidden_range = {1, 1 << 20};
inline constexpr IntegerRange ffn_range = {1, 1 << 24};
inline constexpr IntegerRange layers_range = {1, 1 << 14};
inline constexpr IntegerRange heads_range = {1, 1 << 14};
inline constexpr IntegerRange head_dim_range = {1, 1 << 12};
inline constexpr IntegerRange positions_range = {1, 2147483647};
inline constexpr IntegerRange experts_range = {1, 1 << 16};

/// A config.json while it is read: the parts of it are read one after another into `spec`. Refers to what
/// outlives it.
struct ConfigParts {
  const nlohmann::json& root;
  const Family& family;
  const std::string& source;  ///< for messages
  Problems& problems;
  KeyReader keys;
  ModelSpec spec;

  /// Notes what only keeps the model from running, if its family runs at all.
  void only_planned(const std::string& key, const std::string& what) {
    if (family.runs) {
      spec.planned_only.push_back(key + ": " + what);
    }
  }
};

/// Rotary positions: `rope_theta`, and `rope_scaling` or `rope_parameters`.
void read_rope(ConfigParts& config);
/// Sliding windows, by layer. The number of layers has been read.
void read_windows(ConfigParts& config);
/// The name that a family's config.json has for an activation.
std::string activation_name(Activation activation, const Family& family);
/// Activation, and what scores, embedded tokens, residuals and logits are multiplied by and capped at.
void read_scales(ConfigParts& config);
/// Dropout, which is not built: a warning where a family has it unless told otherwise, else planned only.
void read_dropout(ConfigParts& config);
/// Routed and shared experts. The number of layers has been read.
void read_experts(ConfigParts& config);
/// Latent attention and multi-token prediction of the deepseek families.
void read_latent_attention(ConfigParts& config);

}  // namespace ndmesh::model
