#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "ndmesh/base/dtype.h"

namespace ndmesh::test {

/// One row of the parity grid: `variant` (train/models.h) trained on `mesh` equals the same on one rank.
struct ParityCase {
  std::string variant;
  std::string mesh;
  std::int64_t global;
  std::int64_t micro;
  DType dtype = DType::float64;
  std::vector<std::string> levers = {};  ///< further keys of the job
};

/// Ways to save memory, alone; those of one list are bitwise the same as none.
inline const std::vector<std::vector<std::string>> bitwise_levers = {
    {"recompute.policy=selective"},
    {"recompute.policy=full"},
    {"recompute.policy={every: 2}"},
    {"recompute.policy={budget: 0}"},
    {"shard.unit=part"},
    {"shard.unit={blocks: 2}"},
    {"shard.reshard=false"},
    {"shard.prefetch=0"},
    {"shard.prefetch=3"},
    {"shard.prefetch=3", "shard.gathered_limit=1"},
    {"shard.zero=2"},
    {"shard.offload=optimizer"},
    {"shard.offload=all"},
    {"recompute.offload=true"},
    {"recompute.offload=true", "recompute.policy=full"},
    {"recompute.offload=true", "recompute.policy=selective"},
};

/// What changes the numbers, but no more on one mesh than on another.
inline const std::vector<std::vector<std::string>> rules = {
    {"optimizer.name=sgd", "optimizer.lr=0.3"},
    {"optimizer.name=sgd", "optimizer.momentum=0", "optimizer.lr=3"},
    {"optimizer.name=muon"},
    {"optimizer.name=muon", "optimizer.nesterov=false", "shard.offload=optimizer"},
    {"optimizer.name=muon", "precision.bf16_states=true"},
    {"precision.bf16_states=true"},
    {"train.frozen=['*.self_attn.*', '*layers.1.*', model.embed_tokens.weight]"},
    {"train.frozen='*layers.2.*'", "shard.unit={blocks: 2}", "optimizer.name=muon"},
    {"train.frozen=['*layers.0.*', '*norm*']", "shard.unit=part", "recompute.policy=full"},
};

/// What these rules freeze, in the names of gpt2.
inline const std::vector<std::vector<std::string>> gpt2_rules = {
    {"train.frozen=['*.attn.*', '*h.1.*', transformer.wte.weight]"},
    {"train.frozen='*h.2.*'", "shard.unit={blocks: 2}", "optimizer.name=muon"},
    {"train.frozen=['*h.0.*', '*ln_*']", "shard.unit=part", "recompute.policy=full"},
};

inline std::vector<std::vector<std::string>> rules_for(const std::string& variant) {
  std::vector<std::vector<std::string>> list = rules;
  if (variant == "gpt2") {
    std::copy(gpt2_rules.begin(), gpt2_rules.end(), list.end() - 3);
  }
  return list;
}

/// Run at every test.
inline const std::vector<ParityCase> fast_cases = {
    {"tiny", "dp_replicate=2", 12, 3},
    {"tiny", "dp_shard=2", 12, 1},
    {"tied", "dp_shard=3", 12, 2},
    {"qwen2", "dp_shard=2,dp_replicate=2", 12, 1},
    {"qwen3", "dp_shard=2", 12, 2},
    {"tiny", "dp_shard=2", 12, 2, DType::float32},
    {"tiny", "dp_shard=2", 12, 2, DType::bfloat16},
    {"tiny", "dp_shard=2", 12, 2, DType::bfloat16, {"shard.zero=1", "shard.offload=optimizer"}},
    {"tiny", "dp_shard=2", 12, 2, DType::bfloat16, {"shard.zero=2", "shard.offload=optimizer"}},
    {"tied", "dp_shard=2", 12, 2, DType::float64, {"shard.zero=1", "recompute.policy=full"}},
    {"qwen3",
     "dp_shard=2,dp_replicate=2",
     12,
     1,
     DType::float64,
     {"shard.zero=2", "recompute.policy=selective"}},
    {"tiny", "dp_shard=3", 12, 1, DType::float64, {"shard.unit=part", "recompute.policy=full"}},
    {"gemma2", "dp_shard=2", 12, 2},
    {"gemma3_text", "dp_shard=2", 12, 2, DType::float64, {"recompute.policy=selective"}},
    {"gpt2", "dp_shard=2", 12, 2, DType::float64, {"recompute.policy=selective"}},
    {"phi3", "dp_shard=3", 12, 2, DType::float64, {"shard.unit=part"}},
    {"olmo2", "dp_shard=2", 12, 2, DType::float64, {"recompute.policy=full"}},
    {"granite", "dp_replicate=2", 12, 2},
    {"gpt2", "dp_shard=2", 12, 2, DType::bfloat16},
    {"gemma2", "dp_shard=2", 12, 2, DType::bfloat16},
    {"tiny", "dp_shard=3", 12, 1, DType::float64, rules[0]},
    {"tiny", "dp_shard=2,dp_replicate=2", 12, 1, DType::float64, rules[2]},
    {"tied", "dp_replicate=2", 12, 2, DType::float64, rules[3]},
    {"qwen3", "dp_shard=2", 12, 2, DType::float64, rules[5]},
    {"qwen3", "dp_shard=2", 12, 2, DType::float64, rules[6]},
    {"tiny", "dp_shard=3", 12, 2, DType::bfloat16, rules[6]},
};

/// Every lever, alone and with each other one.
inline void add_levers(std::vector<ParityCase>& cases, const std::string& variant) {
  const std::vector<std::vector<std::string>> stages = {{"shard.zero=1"}, {"shard.zero=2"}, {"shard.zero=3"}};
  const std::vector<std::vector<std::string>> others = {
      {},
      {"recompute.policy=selective"},
      {"recompute.policy=full"},
      {"recompute.policy={every: 2}"},
      {"shard.unit=part"},
      {"shard.unit={blocks: 2}"},
      {"shard.reshard=false"},
      {"shard.prefetch=2", "shard.gathered_limit=20000"},
      {"shard.unit=part", "recompute.policy=full"},
      {"shard.unit={blocks: 2}", "recompute.policy=selective"},
      {"shard.reshard=false", "recompute.policy=full"}};
  for (const std::vector<std::string>& all : std::vector<std::vector<std::string>>{
           {"shard.offload=all"},
           {"shard.offload=all", "shard.reshard=false"},
           {"shard.offload=all", "shard.unit=part", "recompute.policy=full"},
           {"shard.offload=all", "shard.prefetch=2", "recompute.offload=true"}}) {
    cases.push_back({variant, "dp_shard=2", 12, 1, DType::float64, all});
    cases.push_back({variant, "dp_shard=3,dp_replicate=2", 12, 1, DType::float64, all});
  }
  for (const auto& stage : stages) {
    for (const auto& other : others) {
      std::vector<std::string> levers = stage;
      levers.insert(levers.end(), other.begin(), other.end());
      cases.push_back({variant, "dp_shard=2", 12, 1, DType::float64, levers});
      cases.push_back({variant, "dp_shard=3,dp_replicate=2", 12, 1, DType::float64, levers});
    }
  }
  for (const auto& rule : rules_for(variant)) {
    for (const char* mesh : {"dp_replicate=2", "dp_shard=2", "dp_shard=3,dp_replicate=2"}) {
      cases.push_back({variant, mesh, 12, 2, DType::float64, rule});
    }
    std::vector<std::string> second = rule;
    second.emplace_back("shard.zero=2");
    cases.push_back({variant, "dp_shard=3", 12, 1, DType::float64, second});
    cases.push_back({variant, "dp_shard=2", 12, 1, DType::bfloat16, rule});
  }
  for (const char* policy :
       {"recompute.policy=selective", "recompute.policy=full", "recompute.policy={every: 2}"}) {
    cases.push_back({variant, "dp_replicate=2", 12, 2, DType::float64, {policy}});
    cases.push_back({variant, "dp_replicate=2", 12, 2, DType::bfloat16, {policy}});
  }
}

/// Every strategy on every variant: world sizes 2 to 5, with and without accumulation.
inline std::vector<ParityCase> full_grid() {
  std::vector<ParityCase> cases;
  for (const char* variant :
       {"tiny", "tied", "qwen2", "qwen3", "gemma2", "gemma3_text", "gpt2", "phi3", "olmo2", "granite"}) {
    for (const char* mesh : {"dp_replicate=2", "dp_replicate=3", "dp_replicate=5", "dp_shard=2", "dp_shard=3",
                             "dp_shard=4", "dp_shard=5", "dp_shard=2,dp_replicate=2"}) {
      cases.push_back({variant, mesh, 60, 1});
      cases.push_back({variant, mesh, 180, 3});
    }
    for (const char* mesh : {"dp_replicate=2", "dp_shard=3", "dp_shard=2,dp_replicate=2"}) {
      // With the usual eps AdamW's first update is nearly lr times a sign, which turns where a gradient is rounding noise.
      cases.push_back({variant, mesh, 12, 1, DType::float32, {"optimizer.eps=1e-5"}});
      cases.push_back({variant, mesh, 12, 1, DType::bfloat16});
    }
    add_levers(cases, variant);
  }
  return cases;
}

}  // namespace ndmesh::test
