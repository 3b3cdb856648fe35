#pragma once

#include <string_view>

namespace ndmesh::train {

/// Names of a Hugging Face model folder's files.
inline constexpr std::string_view single_weights_file = "model.safetensors";
inline constexpr std::string_view weights_index_file = "model.safetensors.index.json";

/// model-00001-of-00003.safetensors and the like.
inline bool is_shard_file(std::string_view name) {
  return name.starts_with("model-") && name.ends_with(".safetensors");
}

/// Whether a file belongs to the model itself: a new model in the same folder replaces it.
inline bool is_model_file(std::string_view name) {
  return name == "config.json" || name == single_weights_file || name == weights_index_file ||
         is_shard_file(name);
}

}  // namespace ndmesh::train
