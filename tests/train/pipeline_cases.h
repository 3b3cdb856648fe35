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
    {"tied", "pp=2", 12, 12, DType::float64, {"pipeline.schedule=1f1b"}},
    {"tiny", "pp=2,dp_shard=2", 12, 1, DType::bfloat16, {"pipeline.schedule=1f1b"}},
};

}  // namespace ndmesh::test
