#pragma once

#include "ndmesh/model/config.h"
#include "ndmesh/plan/serving/serving.h"

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

inline model::ModelSpec mixtral() {
  return model::preset("mixtral-8x7b");
}

inline model::ModelSpec deepseek_v3() {
  return model::preset("deepseek-v3");
}

}  // namespace ndmesh::plan
