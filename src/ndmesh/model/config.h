#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "ndmesh/model/model_spec.h"

namespace ndmesh::model {

/// Reads a Hugging Face config.json. Families: supported_families(); of a multi-modal config, `text_config`
/// over what the root says of all parts (other parts are left out, with a warning). Another model_type is
/// refused by name with that list. An absent key takes its family's default, null never means 0, and all
/// broken rules come in one RequestError that names `source` (a path, for messages) and the keys. What is
/// only planned is read, not refused: unrunnable_reasons.
ModelSpec spec_from_config(std::string_view json_text, const std::string& source);

/// config.json of a model folder. RequestError when the folder or file cannot be read.
ModelSpec spec_from_folder(const std::filesystem::path& folder);

/// The config.json that Transformers reads back to the same model. `dtype` is the format of the stored
/// weights. RequestError when the spec's family has no keys for what the spec says (biases of its own choice,
/// say), and for what is only planned.
std::string config_from_spec(const ModelSpec& spec, DType dtype);

/// Model families that are built, for help and messages.
std::vector<std::string> supported_families();

/// What keeps the runtime from running the model, one sentence each, with what is allowed; empty when it can.
/// What depends on the job as well (a window shorter than the sequence) is not among them.
std::vector<std::string> unrunnable_reasons(const ModelSpec& spec);

/// Named models: llama-1m, llama-28m, ... (`ndmesh help model.preset` lists them).
ModelSpec preset(const std::string& name);
std::vector<std::string> preset_names();

/// A model of which only the size is known: "70B", "1.5b", "405e9". A llama-like shape of about that size,
/// with unspecified_parameters making the count exact; family "estimate". RequestError when it is no size.
ModelSpec estimate(const std::string& size);
/// Whether `text` looks like such a size.
bool is_size(std::string_view text);

/// FLOPs of one token in training (forward + backward), by one stated convention: 6 per parameter that takes
/// part in a matrix product (head always, and once more for each MTP layer; input table never; of routed
/// experts those that a token meets) and, for causal attention over sequences of `seq_len` tokens, 3 *
/// (query_width + value_width) * seq_len a layer, which is 6 * heads * head_dim * seq_len without latent
/// attention. A layer with a shorter window w counts the pairs inside it: 2 * w - w * w / seq_len takes
/// seq_len's place. Recomputation never counts.
struct FlopsPerToken {
  double weights = 0;
  double attention = 0;
  double total() const { return weights + attention; }
};
FlopsPerToken flops_per_token(const ModelSpec& spec, std::int64_t seq_len);
/// The share of one layer, and of the head.
FlopsPerToken layer_flops_per_token(const ModelSpec& spec, std::int64_t layer, std::int64_t seq_len);
double head_flops_per_token(const ModelSpec& spec);

}  // namespace ndmesh::model
