#include "ndmesh/plan/memory.h"

#include <gtest/gtest.h>

#include "ndmesh/model/config.h"
#include "ndmesh/plan/memory/saved_tensors.h"

namespace ndmesh::plan {
namespace {

job::Job job_on(const mesh::MeshSizes& sizes, DType dtype) {
  job::Job job;
  job.mesh = sizes;
  job.dtype = dtype;
  job.batch = {.global = 64, .micro = 1, .seq_len = 256};
  return job;
}

std::int64_t states(const MemoryBytes& bytes) {
  return bytes[MemoryCategory::parameters] + bytes[MemoryCategory::master_weights] +
         bytes[MemoryCategory::gradients] + bytes[MemoryCategory::optimizer];
}

/// N of an 8B model over 8 ranks at 16 bytes a parameter, within the alignment of parameter starts.
TEST(Memory, SixteenBytesAParameterUnderFullSharding) {
  const model::ModelSpec model = model::preset("llama-3-8b");
  ASSERT_EQ(model.parameter_count(), 8030261248);
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    const auto budgets = predict_memory(job_on({.dp_shard = 8}, dtype), model);
    ASSERT_EQ(budgets.size(), 8U);
    EXPECT_EQ(states(worst(budgets).bytes), 16060522496);
    EXPECT_EQ(worst(budgets).bytes[MemoryCategory::optimizer], 8030261248);
  }
}

TEST(Memory, ReplicatedStatesByDtype) {
  const model::ModelSpec model = model::preset("llama-28m");
  const std::int64_t n = model.parameter_count();
  const auto of = [&](DType dtype) {
    return states(predict_memory(job_on({.dp_replicate = 2}, dtype), model).front().bytes);
  };
  EXPECT_EQ(of(DType::float32), 16 * n);
  EXPECT_EQ(of(DType::bfloat16), 18 * n);  // a bfloat16 copy beside float32 masters
  EXPECT_EQ(of(DType::float64), 32 * n);
}

TEST(Memory, UnevenShardsMakeTheFirstRankTheWorst) {
  const auto budgets = predict_memory(job_on({.dp_shard = 3}, DType::float32), model::preset("llama-1m"));
  EXPECT_EQ(worst(budgets).rank, 0);
  EXPECT_GT(states(budgets[0].bytes), states(budgets[2].bytes));
}

TEST(Memory, ChunkedLossNeverHoldsAllLogits) {
  job::Job job = job_on({}, DType::float32);
  job.batch = {.global = 1, .micro = 1, .seq_len = 8192};
  job.train.loss_chunk = 1024;
  const model::ModelSpec model = model::preset("qwen3-0.6b");
  EXPECT_EQ(predict_memory(job, model).front().bytes[MemoryCategory::logits],
            622329856);  // 1024 x 151936 x 4
}

TEST(Memory, KeepingParametersGathersAllLayers) {
  const model::ModelSpec model = model::preset("llama-28m");
  job::Job job = job_on({.dp_shard = 2}, DType::float32);
  job.shard.reshard = false;
  EXPECT_EQ(predict_memory(job, model).front().bytes[MemoryCategory::gathered], 4 * model.parameter_count());
}

TEST(Memory, ActivationsGrowWithTokensAndLayers) {
  Problem problem;
  problem.model = model::preset("llama-28m");
  problem.profile = profile("ndmesh");
  problem.precision.compute = DType::float32;
  const std::int64_t one = total(saved_by_block(problem, {.tokens = 256, .norm_tokens = 256}, false));
  EXPECT_EQ(total(saved_by_block(problem, {.tokens = 512, .norm_tokens = 512}, false)), 2 * one);
  // Per token: 4 hidden, 2 query and 2 key widths, 3 ffn, and 8 + 2 statistics.
  EXPECT_EQ(one, 256 * 4 * (4 * 512 + 2 * 512 + 2 * 256 + 3 * 1408 + 8 + 2));
}

}  // namespace
}  // namespace ndmesh::plan
