#pragma once

#include <string_view>

namespace ndmesh::model {

/// How the checkpoints of one family name the parts of a model and store their matrices. Modules are named
/// without the ".weight" and ".bias" that follow; those of a layer follow `layer` and its number. The initial
/// values are llama's, which most families share.
struct ParameterNames {
  std::string_view embedding = "model.embed_tokens";
  std::string_view positions = "";
  std::string_view layer = "model.layers.";
  std::string_view final_norm = "model.norm";
  std::string_view head = "lm_head";

  std::string_view attention_norm = "input_layernorm";
  std::string_view attention_post_norm = "";  ///< of families with post_norms
  std::string_view mlp_norm = "post_attention_layernorm";
  std::string_view mlp_post_norm = "";

  std::string_view query = "self_attn.q_proj";
  std::string_view key = "self_attn.k_proj";
  std::string_view value = "self_attn.v_proj";
  std::string_view fused_qkv = "self_attn.qkv_proj";
  std::string_view query_norm = "self_attn.q_norm";
  std::string_view key_norm = "self_attn.k_norm";
  std::string_view attention_output = "self_attn.o_proj";
  std::string_view sinks = "self_attn.sinks";  ///< whole

  std::string_view gate = "gate_proj";  ///< behind `mlp`, or in an expert
  std::string_view up = "up_proj";
  std::string_view down = "down_proj";
  std::string_view fused_gate_up = "gate_up_proj";
  std::string_view mlp = "mlp.";

  std::string_view router = "mlp.gate";
  std::string_view router_bias = "mlp.gate.bias";  ///< whole
  std::string_view experts = "mlp.experts.";
  std::string_view expert_gate = "gate_proj";
  std::string_view expert_up = "up_proj";
  std::string_view expert_down = "down_proj";
  std::string_view shared_expert = "mlp.shared_experts.";
  std::string_view shared_gate = "mlp.shared_expert_gate";

  bool transposed = false;       ///< matrices are [in, out]
  bool qkv_by_head = false;      ///< a fused q, k, v is interleaved by head
  bool stacked_experts = false;  ///< one tensor holds all experts, gate and up interleaved by row
};

/// Names of a family; llama's for one that has none of its own (an estimated model).
const ParameterNames& names_of(std::string_view family);

}  // namespace ndmesh::model
