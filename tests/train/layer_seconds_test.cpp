#include "ndmesh/train/layer_seconds.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "ndmesh/train/run.h"
#include "train/models.h"
#include "train/scratch_folder.h"

namespace ndmesh::train {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::Gt;

TEST(LayerSeconds, StagesAreCutByTheCostliest) {
  EXPECT_THAT((LayerSeconds{{1, 1, 1, 1, 1, 1}, 0, 0}).cut(3), ElementsAre(2, 2, 2));
  EXPECT_THAT((LayerSeconds{{1, 1, 1, 1, 1, 1}, 0, 2}).cut(2), ElementsAre(4, 2));  // the head stands last
  EXPECT_THAT((LayerSeconds{{1, 1, 1, 1, 1, 1}, 2, 0}).cut(2), ElementsAre(2, 4));  // the embedding first
  EXPECT_THAT((LayerSeconds{{4, 1, 1, 1, 1}, 0, 0}).cut(2), ElementsAre(1, 4));
  EXPECT_THAT((LayerSeconds{{1, 1, 1}, 100, 100}).cut(3), ElementsAre(1, 1, 1));
}

class MeasuredLayers : public testing::TestWithParam<const char*> {};

TEST_P(MeasuredLayers, HaveSecondsForEveryPartOfTheModel) {
  const ScratchFolder folder;
  job::Job job = test::tiny_job(folder.path(), GetParam());
  job.mesh = mesh::parse_mesh("pp=2,tp=2");
  const model::ModelSpec model = job::model_of(job);
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    job.dtype = dtype;
    const LayerSeconds seconds = measure_layers(job, model);
    ASSERT_EQ(seconds.layers.size(), static_cast<std::size_t>(model.layers));
    EXPECT_THAT(seconds.layers, Each(Gt(0)));
    EXPECT_GT(seconds.embedding, 0);
    EXPECT_GT(seconds.head, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, MeasuredLayers,
                         testing::Values("tiny_5", "tied_5", "qwen2", "qwen3", "gpt2", "gemma3_text",
                                         "granite"));

TEST(MeasuredLayers, OfOneKindAreMeasuredOnce) {
  const ScratchFolder folder;
  const job::Job job = test::tiny_job(folder.path(), "tiny_8");
  const LayerSeconds seconds = measure_layers(job, job::model_of(job));
  EXPECT_THAT(seconds.layers, Each(seconds.layers.front()));
}

TEST(MeasuredLayers, LeaveTheProcessAsItWas) {
  const ScratchFolder folder;
  job::Job job = test::tiny_job(folder.path());
  job.run.threads = 3;
  const auto generator = [] { return at::globalContext().defaultGenerator(at::kCPU).get_state(); };
  const at::Tensor before = generator();
  const int threads = at::get_num_threads();
  measure_layers(job, job::model_of(job));
  EXPECT_TRUE(before.equal(generator()));
  EXPECT_EQ(at::get_num_threads(), threads);
}

/// The run's job says which stages it had, and runs them again without measuring.
TEST(MeasuredLayers, BecomeTheStagesOfTheRun) {
  const ScratchFolder folder;
  job::Job job = test::tiny_job(folder.path(), "tiny_5");
  job.mesh.pp = 2;
  job.pipeline.layers.policy = job::StageLayers::Policy::cost;
  job.pipeline.measure = true;
  const Inputs inputs = open_inputs(job);
  ASSERT_TRUE(inputs.measured);
  EXPECT_EQ(run_training(inputs, {folder.path(), nullptr, {}}).steps, job.train.steps);
  const job::Job written = job::read_job(folder.path() / "job.yaml", {});
  EXPECT_EQ(written.pipeline.layers.policy, job::StageLayers::Policy::given);
  EXPECT_EQ(written.pipeline.layers.layers, inputs.measured->cut(2));
  EXPECT_EQ(std::accumulate(written.pipeline.layers.layers.begin(), written.pipeline.layers.layers.end(), 0),
            5);
  EXPECT_FALSE(written.pipeline.measure);
  EXPECT_FALSE(open_inputs(written).measured);
}

TEST(MeasuredLayers, AreNotAskedForOnOneStage) {
  const ScratchFolder folder;
  job::Job job = test::tiny_job(folder.path());
  job.pipeline.layers.policy = job::StageLayers::Policy::cost;
  job.pipeline.measure = true;
  EXPECT_FALSE(open_inputs(job).measured);
}

}  // namespace
}  // namespace ndmesh::train
