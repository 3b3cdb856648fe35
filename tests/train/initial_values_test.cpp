#include "ndmesh/train/initial_values.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "ndmesh/nn/decoder.h"
#include "ndmesh/parallel/parallel_model.h"
#include "train/models.h"
#include "train/scratch_folder.h"

namespace ndmesh::train {
namespace {

using Values = std::map<std::string, at::Tensor>;

/// Every full parameter of the fresh model on a mesh, as each rank has it.
std::vector<Values> fresh_values_of_ranks(const job::Job& job, std::uint64_t seed) {
  const model::ModelSpec model = job::model_of(job);
  std::vector<Values> values(static_cast<std::size_t>(mesh::Mesh(job.mesh).world()));
  comm::run_ranks(mesh::Mesh(job.mesh), {}, [&](comm::Communicator& communicator) {
    parallel::ParallelModel parallel(model, job, at::kFloat, communicator);
    fill_fresh(parallel.parameters(), model, seed, communicator.rank());
    for (const std::string& name : parallel.names()) {
      values[static_cast<std::size_t>(communicator.rank())][name] = parallel.gather_value(name).clone();
    }
  });
  return values;
}

Values fresh_values(const job::Job& job, std::uint64_t seed) {
  return fresh_values_of_ranks(job, seed).front();
}

class InitialValues : public testing::Test {
 protected:
  ScratchFolder folder_;
  job::Job job_ = test::tiny_job(folder_.path(), "qwen2");
};

TEST_F(InitialValues, SameOnEveryRankOfEveryMesh) {
  const auto reference = fresh_values(job_, 7);
  for (const mesh::MeshSizes& sizes : {mesh::MeshSizes{.dp_shard = 4},
                                       {.dp_shard = 3},
                                       {.dp_replicate = 2},
                                       {.dp_shard = 2, .dp_replicate = 2}}) {
    job_.mesh = sizes;
    for (const Values& of_rank : fresh_values_of_ranks(job_, 7)) {
      EXPECT_EQ(of_rank.size(), reference.size());
      for (const auto& [name, value] : of_rank) {
        EXPECT_TRUE(at::equal(value, reference.at(name))) << name << " on " << sizes.name();
      }
    }
  }
}

TEST_F(InitialValues, LayersAndSeedsDiffer) {
  const auto seven = fresh_values(job_, 7);
  const auto eight = fresh_values(job_, 8);
  const std::string first = "model.layers.0.mlp.up_proj.weight";
  EXPECT_FALSE(at::equal(seven.at(first), seven.at("model.layers.2.mlp.up_proj.weight")));
  EXPECT_FALSE(at::equal(seven.at(first), eight.at(first)));
}

TEST_F(InitialValues, NormalMatricesUnitNormsZeroBiases) {
  const auto values = fresh_values(job_, 1);
  const at::Tensor table = values.at("model.embed_tokens.weight");  // 257 x 48 = 12336 draws
  EXPECT_NEAR(table.mean().item<double>(), 0.0, 4 * 0.02 / std::sqrt(12336.0));
  EXPECT_NEAR(table.std().item<double>(), 0.02, 4 * 0.02 / std::sqrt(2 * 12336.0));
  EXPECT_NEAR((table.abs() > 2 * 0.02).to(at::kFloat).mean().item<double>(), 0.0455, 0.008);
  EXPECT_TRUE(at::equal(values.at("model.norm.weight"), at::ones({48})));
  EXPECT_EQ(values.at("model.layers.0.self_attn.q_proj.bias").abs().max().item<float>(), 0.0F);
}

}  // namespace
}  // namespace ndmesh::train
