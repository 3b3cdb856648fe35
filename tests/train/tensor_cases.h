#pragma once

#include <vector>

#include "train/parity_cases.h"

namespace ndmesh::test {

/// Run at every test.
inline const std::vector<ParityCase> tensor_cases = {
    {"tiny", "tp=2", 4, 2},
    {"tiny",
     "tp=6",
     4,
     2,
     DType::float64,
     {"batch.seq_len=18"}},  // three ranks share a KV head, 257 rows of the vocabulary are 43 a rank
    {"tiny", "tp=2", 4, 2, DType::float64, {"tensor.sequence_parallel=false"}},
    {"eight_heads", "tp=4", 4, 2},
    {"eight_heads", "tp=4,dp_shard=2", 4, 1, DType::float64, {"tensor.sequence_parallel=false"}},
    {"eight_heads", "tp=4,pp=2", 4, 1, DType::float64, {"pipeline.schedule=zb-h1"}},
    {"tied", "tp=2,dp_shard=2", 4, 1},
    {"qwen2", "tp=6,dp_shard=2", 4, 2, DType::float64, {"batch.seq_len=18"}},
    {"qwen3", "tp=2,dp_replicate=2", 4, 1, DType::float64, {"tensor.sequence_parallel=false"}},
    {"qwen3", "tp=6", 4, 2, DType::float64, {"batch.seq_len=18"}},
    {"gpt2", "tp=3", 4, 2, DType::float64, {"batch.seq_len=15"}},
    {"gpt2", "tp=2,dp_shard=2", 4, 2, DType::float64, {"tensor.sequence_parallel=false"}},
    {"phi3", "tp=6,dp_shard=2", 4, 2, DType::float64, {"batch.seq_len=18"}},
    {"gemma2", "tp=2", 4, 2},
    {"olmo2", "tp=2,dp_shard=2", 4, 1, DType::float64, {"recompute.policy=selective"}},
    {"olmo2", "tp=6", 4, 2, DType::float64, {"batch.seq_len=18"}},
    {"olmo2",
     "tp=2,pp=3",
     4,
     1,
     DType::float64,
     {"pipeline.schedule=zb-h1", "tensor.sequence_parallel=false"}},
    {"gemma3_text", "tp=2", 4, 2, DType::float64, {"recompute.policy=selective"}},
    {"granite", "tp=2,dp_shard=2", 4, 1, DType::float64, {"recompute.policy=full"}},
    {"tiny", "tp=2,dp_shard=2,dp_replicate=2", 4, 1, DType::float64, {"shard.zero=1"}},
    {"tiny", "tp=2,dp_shard=2", 4, 1, DType::float64, {"shard.offload=all", "shard.unit=part"}},
    {"tiny", "tp=2", 4, 2, DType::float64, {"recompute.offload=true"}},
    {"tiny", "tp=2", 4, 2, DType::float32, {"optimizer.eps=1e-5"}},
    {"tiny", "tp=2,dp_shard=2", 4, 2, DType::bfloat16},
    {"qwen3", "tp=2", 4, 2, DType::float64, {"train.frozen=['*.self_attn.*', '*norm*']"}},
};

/// Every family on every size of tp that its heads allow, alone and with data parallelism; every lever with tp.
inline std::vector<ParityCase> tensor_grid() {
  std::vector<ParityCase> cases;
  for (const char* variant :
       {"tiny", "tied", "qwen2", "qwen3", "gemma2", "gemma3_text", "gpt2", "phi3", "granite", "olmo2"}) {
    for (const char* sequence : {"tensor.sequence_parallel=true", "tensor.sequence_parallel=false"}) {
      for (const char* mesh : {"tp=2", "tp=6", "tp=2,dp_shard=2", "tp=2,dp_shard=3", "tp=2,dp_replicate=2",
                               "tp=2,dp_shard=2,dp_replicate=2"}) {
        cases.push_back({variant, mesh, 12, 1, DType::float64, {sequence, "batch.seq_len=18"}});
      }
      // Sums of tp round otherwise than those of one rank, which AdamW's first updates, nearly lr times a sign, amplify from
      // step to step; sgd does not.
      cases.push_back({variant, "tp=2", 12, 1, DType::float32, {sequence, "optimizer.name=sgd"}});
      cases.push_back({variant, "tp=2,dp_shard=2", 12, 1, DType::bfloat16, {sequence}});
    }
    for (const auto& levers : bitwise_levers) {
      cases.push_back({variant, "tp=2,dp_shard=2", 12, 1, DType::float64, levers});
    }
    for (const auto& rule : rules_for(variant)) {
      const bool muon =
          std::any_of(rule.begin(), rule.end(), [](const auto& key) { return key == "optimizer.name=muon"; });
      if (!muon) {
        cases.push_back({variant, "tp=2,dp_shard=2", 12, 1, DType::float64, rule});
      }
    }
  }
  return cases;
}

}  // namespace ndmesh::test
