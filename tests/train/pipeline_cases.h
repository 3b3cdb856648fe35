#pragma once

#include "train/parity_cases.h"

namespace ndmesh::test {

/// Rows of the parity grid in which layers are cut over pp. `tiny_5` and `tied_5` are tiny-A and tiny-T, the awkward models
/// that the issues of other systems were recast with.
inline const std::vector<ParityCase> fast_pipeline_cases = {
    {"tiny_5", "pp=2", 12, 3, DType::float64, {"pipeline.schedule=gpipe"}},
    {"tiny_5", "pp=2", 12, 1, DType::float64, {"pipeline.schedule=1f1b"}},
    {"tied_5", "pp=5", 12, 3, DType::float64, {"pipeline.schedule=1f1b"}},
    {"tiny_5", "pp=2", 12, 3, DType::float64, {"pipeline.schedule=interleaved"}},
    {"tied_5", "pp=2,dp_shard=2", 12, 1, DType::float64, {"pipeline.schedule=interleaved"}},
    {"tied_5", "pp=3,dp_shard=2", 12, 1, DType::float64, {"pipeline.schedule=1f1b"}},
    {"qwen3_5", "pp=2,dp_shard=2,dp_replicate=2", 12, 1, DType::float64, {"shard.zero=2"}},
    {"qwen2", "pp=3,dp_replicate=2", 12, 2, DType::float64, {"recompute.policy=full"}},
    {"gpt2", "pp=2,dp_shard=2", 12, 2, DType::float64, {"shard.zero=1", "pipeline.schedule=gpipe"}},
    {"tiny_5", "pp=2", 12, 1, DType::float64, {"pipeline.schedule=zb-h1"}},
    {"tied_5", "pp=3,dp_shard=2", 12, 1, DType::float64, {"pipeline.schedule=zb-h1"}},
    {"tied_5", "pp=2,dp_replicate=2", 12, 1, DType::float64, {"pipeline.schedule=zb-v"}},
    {"tied_5", "pp=2,dp_shard=2", 12, 1, DType::float64, {"pipeline.schedule=zb-v"}},
    {"gpt2_5", "pp=2,dp_shard=2", 12, 1, DType::float64, {"pipeline.schedule=zb-v", "shard.zero=1"}},
    {"qwen2_5",
     "pp=2,dp_shard=2",
     12,
     1,
     DType::float64,
     {"pipeline.schedule=zb-v", "recompute.policy=full", "shard.unit=part"}},
    {"tiny_5", "pp=2,tp=2,dp_shard=2", 12, 3, DType::float64, {"pipeline.schedule=zb-h1"}},
    {"tied_5", "pp=2,tp=2", 12, 1, DType::float64, {"pipeline.schedule=zb-v"}},
    {"qwen3_5", "pp=2,tp=2,dp_replicate=2", 12, 1, DType::float64, {"pipeline.schedule=interleaved"}},
    {"tiny_5", "pp=2", 12, 3, DType::float64, {"pipeline.layers=[1, 4]"}},
    {"tied_5", "pp=2,dp_shard=2", 12, 1, DType::float64, {"pipeline.layers=cost", "pipeline.schedule=zb-v"}},
    {"tiny_5", "pp=2,tp=2", 12, 3, DType::float64, {"pipeline.layers=cost", "pipeline.measure=true"}},
    {"tied", "pp=2", 12, 12, DType::float64, {"pipeline.schedule=1f1b"}},
    {"tiny", "pp=2,dp_shard=2", 12, 1, DType::bfloat16, {"pipeline.schedule=1f1b"}},
};

/// Every schedule on every mesh of up to 8 ranks with a pipeline of 2 to 4, and what shards, saves memory and rounds.
inline std::vector<ParityCase> full_pipeline_grid() {
  const std::vector<std::vector<std::string>> levers = {{"shard.zero=1"},
                                                        {"shard.zero=2"},
                                                        {"shard.reshard=false"},
                                                        {"shard.unit=part", "recompute.policy=full"},
                                                        {"recompute.policy=selective"},
                                                        {"recompute.policy={every: 2}"},
                                                        {"recompute.policy={budget: 20000}"},
                                                        {"recompute.offload=true"},
                                                        {"shard.offload=all"},
                                                        {"pipeline.layers=cost"},
                                                        {"train.frozen='*.0.*'"},
                                                        {"optimizer.name=muon"}};
  // With the usual eps AdamW's first updates are nearly lr times a sign, which turns where a gradient is rounding noise.
  const std::string eps = "optimizer.eps=1e-5";
  std::vector<ParityCase> cases;
  for (const char* variant : {"tiny_8", "tied_8", "qwen2_8", "qwen3_8", "gpt2_8"}) {
    for (const char* kind : {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"}) {
      const std::string schedule = std::string("pipeline.schedule=") + kind;
      for (const char* mesh :
           {"pp=2", "pp=3", "pp=4", "pp=2,dp_replicate=2", "pp=2,dp_shard=3", "pp=4,dp_shard=2", "pp=2,tp=2",
            "pp=2,tp=2,dp_shard=2", "pp=2,dp_shard=2,dp_replicate=2"}) {
        cases.push_back({variant, mesh, 24, 1, DType::float64, {schedule}});
      }
      for (std::vector<std::string> more : levers) {
        more.push_back(schedule);
        cases.push_back({variant, "pp=2,dp_shard=2", 24, 1, DType::float64, more});
      }
      cases.push_back({variant, "pp=2,dp_shard=2", 24, 2, DType::bfloat16, {schedule, eps}});
      cases.push_back({variant, "pp=3", 24, 2, DType::float32, {schedule, eps}});
    }
  }
  return cases;
}

}  // namespace ndmesh::test
