#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "ndmesh/train/parity.h"
#include "ndmesh/train/run.h"
#include "train/models.h"
#include "train/scratch_folder.h"

/// Training a part of a model: the rest is not touched, and no memory is spent on it.
namespace ndmesh::train {
namespace {

const std::filesystem::path data = NDMESH_TEST_DATA;

job::Job head_only(const mesh::MeshSizes& sizes) {
  job::Job job;
  job.model.path = (data / "oracle" / "tiny-a").string();
  job.data.files = {(data / "stock_pytorch" / "tokens.u16").string()};
  job.data.format = job::DataFormat::u16;
  job.batch = {.global = 8, .micro = 2, .seq_len = 16};
  job.mesh = sizes;
  job.train.steps = 3;
  job.train.frozen = {"model.*"};
  job.run.threads = 1;
  return job;
}

std::map<std::string, at::Tensor> weights_of(const std::filesystem::path& folder,
                                             const model::ModelSpec& model) {
  const ModelWeights weights(folder, model);
  std::map<std::string, at::Tensor> values;
  for (const model::ParameterSpec& parameter : model.parameters()) {
    layout::Box whole;
    for (const std::int64_t size : parameter.shape) {
      whole.push_back({0, size});
    }
    values[parameter.name] = at::empty(parameter.shape, at::kFloat);
    weights.read(parameter.name, whole, values[parameter.name]);
  }
  return values;
}

TEST(FrozenParameters, KeepTheirBitsInTheModelThatIsWritten) {
  for (const mesh::MeshSizes& sizes : {mesh::MeshSizes{}, {.dp_shard = 2}, {.dp_replicate = 2}}) {
    const ScratchFolder folder;
    const Inputs inputs = open_inputs(head_only(sizes));
    run_training(inputs, {folder.path(), nullptr, {}});
    const auto before = weights_of(inputs.job.model.path, inputs.model);
    for (const auto& [name, after] : weights_of(folder.path() / "model", inputs.model)) {
      EXPECT_EQ(at::equal(after, before.at(name)), name != "lm_head.weight")
          << name << " on " << sizes.name();
    }
  }
}

TEST(FrozenParameters, HaveNoGradient) {
  const Trajectory run = record_trajectory(head_only({.dp_shard = 2}));
  ASSERT_EQ(run.gradients.front().size(), 1U);
  EXPECT_EQ(run.gradients.front().at("lm_head.weight").numel(), 12336);
}

}  // namespace
}  // namespace ndmesh::train
