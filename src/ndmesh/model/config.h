#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "ndmesh/model/model_spec.h"

namespace ndmesh::model {

/// Reads a Hugging Face config.json. Families: llama, mistral, qwen2, qwen3; another model_type is refused by
/// name with that list. An absent key takes its family's default, null never means 0, and all broken rules
/// come in one RequestError that names `source` (a path, for messages) and the keys.
ModelSpec spec_from_config(std::string_view json_text, const std::string& source);

/// config.json of a model folder. RequestError when the folder or file cannot be read.
ModelSpec spec_from_folder(const std::filesystem::path& folder);

/// The config.json that Transformers reads back to the same model. `dtype` is the format of the stored
/// weights. RequestError when the spec's family has no keys for what the spec says (biases of its own choice,
/// say).
std::string config_from_spec(const ModelSpec& spec, DType dtype);

/// Model families that are built, for help and messages.
std::vector<std::string> supported_families();

/// Named models: llama-1m, llama-28m, ... (`ndmesh help model.preset` lists them).
ModelSpec preset(const std::string& name);
std::vector<std::string> preset_names();

/// FLOPs of one token in training (forward + backward), by one stated convention: 6 per parameter that takes
/// part in a matrix product (head always, input table never) and, for causal attention over sequences of
/// `seq_len` tokens, 6 * layers * heads * head_dim * seq_len. Recomputation never counts.
struct FlopsPerToken {
  double weights = 0;
  double attention = 0;
  double total() const { return weights + attention; }
};
FlopsPerToken flops_per_token(const ModelSpec& spec, std::int64_t seq_len);

}  // namespace ndmesh::model
