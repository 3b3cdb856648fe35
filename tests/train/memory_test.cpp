#include <gtest/gtest.h>

#include "ndmesh/measure/memory_ledger.h"
#include "ndmesh/plan/memory.h"
#include "ndmesh/train/run.h"
#include "train/models.h"
#include "train/scratch_folder.h"

/// Predicted against counted, category by category.
namespace ndmesh::train {
namespace {

struct MemoryCase {
  std::string name;
  std::string variant;
  mesh::MeshSizes mesh;
  DType dtype;
};

class Memory : public testing::TestWithParam<MemoryCase> {
 protected:
  static void SetUpTestSuite() { measure::install_counting_allocator(); }
};

double ratio(std::int64_t counted, std::int64_t predicted) {
  return static_cast<double>(counted) / static_cast<double>(predicted);
}

TEST_P(Memory, PredictionIsWhatIsCounted) {
  const ScratchFolder folder;
  job::Job job = test::tiny_job(folder.path(), GetParam().variant);
  job.mesh = GetParam().mesh;
  job.dtype = GetParam().dtype;
  job.batch = {.global = 36, .micro = 3, .seq_len = 128};
  job.train = {.steps = 3, .clip = 1.0, .loss_chunk = 64};
  const RunSummary summary = run_training(open_inputs(job), {folder.path(), nullptr, {}});
  const auto counted = [&](MemoryCategory c) { return summary.counted[c]; };
  const auto predicted = [&](MemoryCategory c) { return summary.predicted[c]; };
  for (const MemoryCategory exact : {MemoryCategory::parameters, MemoryCategory::master_weights,
                                     MemoryCategory::gradients, MemoryCategory::optimizer}) {
    EXPECT_EQ(counted(exact), predicted(exact)) << memory_category_names[static_cast<std::size_t>(exact)];
  }
  if (job.mesh.dp_shard > 1) {
    EXPECT_NEAR(ratio(counted(MemoryCategory::gathered), predicted(MemoryCategory::gathered)), 1.0, 0.02);
  } else {
    EXPECT_EQ(counted(MemoryCategory::gathered), 0);
  }
  EXPECT_NEAR(ratio(counted(MemoryCategory::activations), predicted(MemoryCategory::activations)), 1.0, 0.10);
  EXPECT_NEAR(ratio(counted(MemoryCategory::logits), predicted(MemoryCategory::logits)), 1.0, 0.10);
  if (job.dtype != DType::bfloat16) {  // there, on so small a model, oneDNN's scratch outweighs the gradients
    EXPECT_NEAR(ratio(counted(MemoryCategory::buffers), predicted(MemoryCategory::buffers)), 1.0, 0.10);
  }
}

INSTANTIATE_TEST_SUITE_P(
    , Memory,
    testing::Values(MemoryCase{"one_rank", "tiny", {}, DType::float32},
                    MemoryCase{"one_rank_bfloat16", "tiny", {}, DType::bfloat16},
                    MemoryCase{"replicated_tied", "tied", {.dp_replicate = 2}, DType::float32},
                    MemoryCase{"sharded", "tiny", {.dp_shard = 2}, DType::float32},
                    MemoryCase{"sharded_float64", "qwen3", {.dp_shard = 2}, DType::float64},
                    MemoryCase{"sharded_bfloat16", "qwen2", {.dp_shard = 2}, DType::bfloat16},
                    MemoryCase{"sharded_three", "qwen3", {.dp_shard = 3}, DType::float32},
                    MemoryCase{"hybrid", "tied", {.dp_shard = 2, .dp_replicate = 2}, DType::float32}),
    [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace ndmesh::train
