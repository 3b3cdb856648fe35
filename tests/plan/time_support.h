#pragma once

#include "ndmesh/cluster/cluster.h"
#include "ndmesh/plan/problem.h"
#include "ndmesh/plan/profile/constants.h"

namespace ndmesh::plan::test {

/// A device of round figures: 100 TFLOP/s, 1 TB/s.
inline cluster::Device round_device() {
  cluster::Device device;
  device.name = "round";
  device.architecture = "Ampere";
  device.bf16_flops = 100e12;
  device.memory_bytes = 80'000'000'000;
  device.memory_bandwidth = 1e12;
  device.host_bandwidth = 25e9;
  return device;
}

/// Nodes of `per_node` devices, `inner` bytes/s inside and `outer` bytes/s for each device between them; no latency.
inline cluster::Cluster two_levels(std::int64_t nodes, std::int64_t per_node, double inner, double outer) {
  cluster::Cluster cluster;
  cluster.name = "test";
  cluster.device = round_device();
  cluster.nodes = nodes;
  cluster.devices_per_node = per_node;
  cluster.usable_bytes = cluster.device.memory_bytes;
  cluster.levels = {{.name = "inner", .devices = per_node, .bandwidth = inner}};
  if (nodes > 1) {
    cluster.levels.push_back({.name = "outer", .devices = nodes * per_node, .bandwidth = outer});
  }
  return cluster;
}

/// Lines at their full rate, no overheads: closed forms hold exactly.
inline Constants ideal(const cluster::Cluster& cluster) {
  Constants constants = constants_for(cluster, "megatron");
  for (const char* const name : {"inner_efficiency", "outer_efficiency", "in_network_gain"}) {
    constants.at(name) = 1;
  }
  for (const char* const name : {"collective_seconds", "kernel_seconds", "host_seconds",
                                 "micro_batch_seconds", "step_seconds", "straggler"}) {
    constants.at(name) = 0;
  }
  return constants;
}

/// A llama of 8 layers.
inline model::ModelSpec small_llama() {
  model::ModelSpec model;
  model.family = "llama";
  model.vocab = 32000;
  model.hidden = 2048;
  model.layers = 8;
  model.heads = 16;
  model.kv_heads = 16;
  model.head_dim = 128;
  model.ffn = 5632;
  model.max_positions = 4096;
  return model;
}

inline Problem small_problem(const cluster::Cluster& cluster) {
  Problem problem;
  problem.model = small_llama();
  problem.cluster = cluster;
  problem.profile.name = "megatron";
  problem.profile.time = time_profile(Runtime::megatron);
  problem.seq_len = 2048;
  problem.global_batch = 64;
  return problem;
}

}  // namespace ndmesh::plan::test
