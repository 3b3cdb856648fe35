#pragma once

#include "ndmesh/model/config.h"
#include "ndmesh/plan/serving.h"

/// Models, clusters and questions for tests of serving.
namespace ndmesh::plan {

inline constexpr std::int64_t gibi = std::int64_t{1} << 30;

/// Devices of one node, or of `nodes` nodes, with fast links inside.
inline cluster::Cluster devices_of(std::int64_t per_node, std::int64_t usable_bytes, std::int64_t nodes = 1) {
  cluster::Cluster cluster;
  cluster.name = "test";
  cluster.device.name = "test";
  cluster.device.fp8_flops = 1;
  cluster.nodes = nodes;
  cluster.devices_per_node = per_node;
  cluster.usable_bytes = usable_bytes;
  cluster.device.memory_bytes = usable_bytes;
  cluster.levels.push_back({.name = "nvlink", .devices = per_node});
  if (nodes > 1) {
    cluster.levels.push_back({.name = "network", .devices = nodes * per_node});
  }
  return cluster;
}

/// What the driver reports of an H100 of "80 GB".
inline constexpr std::int64_t h100_bytes = 85520809984;

inline ServingQuestion question_of(const model::ModelSpec& model, const cluster::Cluster& cluster,
                                   std::int64_t context = 0) {
  ServingQuestion question;
  question.model = model;
  question.cluster = cluster;
  question.keys.context = context;
  return question;
}

/// OPT (arXiv 2205.01068): LayerNorm, learned positions, biases, a tied table.
inline model::ModelSpec opt(std::int64_t hidden, std::int64_t layers, std::int64_t heads) {
  model::ModelSpec spec;
  spec.family = "opt";
  spec.vocab = 50272;
  spec.hidden = hidden;
  spec.layers = layers;
  spec.heads = spec.kv_heads = heads;
  spec.head_dim = hidden / heads;
  spec.ffn = 4 * hidden;
  spec.max_positions = 2050;
  spec.tied = spec.layer_norm = spec.learned_positions = true;
  spec.gated = false;
  spec.qkv_bias = spec.output_bias = spec.mlp_bias = true;
  return spec;
}

/// Mixtral 8x7B (arXiv 2401.04088).
inline model::ModelSpec mixtral() {
  model::ModelSpec spec = model::preset("llama-3-8b");
  spec.family = "mixtral";
  spec.vocab = 32000;
  spec.max_positions = 32768;
  spec.experts = model::Experts{.count = 8, .per_token = 2, .ffn = 14336};
  spec.experts->layers.assign(32, true);
  return spec;
}

/// DeepSeek-V3 (arXiv 2412.19437, section 4.2).
inline model::ModelSpec deepseek_v3() {
  model::ModelSpec spec;
  spec.family = "deepseek_v3";
  spec.vocab = 129280;
  spec.hidden = 7168;
  spec.layers = 61;
  spec.heads = spec.kv_heads = 128;
  spec.head_dim = 128;
  spec.ffn = 18432;
  spec.max_positions = 163840;
  spec.latent = model::LatentAttention{
      .query_rank = 1536, .kv_rank = 512, .nope_dim = 128, .rope_dim = 64, .value_dim = 128};
  spec.experts =
      model::Experts{.count = 256, .per_token = 8, .ffn = 2048, .shared_ffn = 2048, .router_bias = false};
  spec.experts->layers.assign(61, true);
  std::fill_n(spec.experts->layers.begin(), 3, false);
  return spec;
}

}  // namespace ndmesh::plan
