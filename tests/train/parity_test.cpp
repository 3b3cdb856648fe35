#include "ndmesh/train/parity.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ndmesh/base/error.h"
#include "train/expect_parity.h"
#include "train/models.h"
#include "train/pipeline_cases.h"
#include "train/scratch_folder.h"

namespace ndmesh::train {
namespace {

using test::expect_parity;
using test::name_of_case;
using test::ParityCase;

class Parity : public testing::TestWithParam<ParityCase> {};
TEST_P(Parity, Holds) {
  expect_parity(GetParam());
}
INSTANTIATE_TEST_SUITE_P(, Parity, testing::ValuesIn(test::fast_cases), name_of_case);

class PipelineParity : public testing::TestWithParam<ParityCase> {};
TEST_P(PipelineParity, Holds) {
  expect_parity(GetParam());
}
INSTANTIATE_TEST_SUITE_P(, PipelineParity, testing::ValuesIn(test::fast_pipeline_cases), name_of_case);

class SlowPipelineGrid : public testing::TestWithParam<ParityCase> {};
TEST_P(SlowPipelineGrid, Holds) {
  expect_parity(GetParam());
}
INSTANTIATE_TEST_SUITE_P(, SlowPipelineGrid, testing::ValuesIn(test::full_pipeline_grid()), name_of_case);

class SlowParityGrid : public testing::TestWithParam<ParityCase> {};
TEST_P(SlowParityGrid, Holds) {
  expect_parity(GetParam());
}
INSTANTIATE_TEST_SUITE_P(, SlowParityGrid, testing::ValuesIn(test::full_grid()), name_of_case);

TEST(ParityCheck, RunsRepeatBitwise) {
  const ScratchFolder folder;
  job::Job job = test::tiny_job(folder.path());
  job.mesh.dp_shard = 2;
  job.train.steps = 3;
  const Trajectory once = record_trajectory(job);
  const Trajectory again = record_trajectory(job);
  EXPECT_EQ(once.losses, again.losses);
  for (const auto& [name, gradient] : once.gradients.back()) {
    EXPECT_TRUE(at::equal(gradient, again.gradients.back().at(name))) << name;
  }
}

TEST(ParityCheck, LeversThatOnlyMoveOrRepeatWorkChangeNoBit) {
  const ScratchFolder folder;
  const auto trajectory = [&](const std::vector<std::string>& levers) {
    job::Job job = test::tiny_job(folder.path(), "qwen3", levers);
    job.mesh.dp_shard = 2;
    job.train.steps = 3;
    job.dtype = DType::float32;
    return record_trajectory(job);
  };
  const Trajectory plain = trajectory({});
  for (const auto& levers : test::bitwise_levers) {
    const Trajectory run = trajectory(levers);
    EXPECT_EQ(run.losses, plain.losses) << levers.front();
    for (std::size_t step = 0; step < plain.gradients.size(); ++step) {
      for (const auto& [name, gradient] : plain.gradients[step]) {
        EXPECT_TRUE(at::equal(gradient, run.gradients[step].at(name))) << levers.front() << ", " << name;
      }
    }
  }
}

/// On the way to the host and back nothing is lost, whatever the precision, the rule and the layout.
TEST(ParityCheck, OffloadChangesNoBit) {
  const ScratchFolder folder;
  struct Case {
    const char* mesh;
    const char* dtype;
    const char* rule;
    const char* offload;
  };
  for (const Case& one : {Case{"1", "bfloat16", "adamw", "optimizer"},
                          {"dp_replicate=2", "bfloat16", "muon", "optimizer"},
                          {"dp_shard=2", "float32", "sgd", "optimizer"},
                          {"dp_shard=2", "float32", "adamw", "all"},
                          {"dp_shard=3", "bfloat16", "adamw", "all"},
                          {"dp_shard=2,dp_replicate=2", "float32", "sgd", "all"}}) {
    const auto trajectory = [&](const char* offload) {
      job::Job job = test::tiny_job(
          folder.path(), "tied",
          {std::string("precision.dtype=") + one.dtype, std::string("optimizer.name=") + one.rule,
           std::string("shard.offload=") + offload, "train.steps=3"});
      job.mesh = mesh::parse_mesh(one.mesh);
      return record_trajectory(job);
    };
    const Trajectory plain = trajectory("none");
    const Trajectory offloaded = trajectory(one.offload);
    EXPECT_EQ(plain.losses, offloaded.losses) << one.mesh << ", " << one.offload;
    for (const auto& [name, gradient] : plain.gradients.back()) {
      EXPECT_TRUE(at::equal(gradient, offloaded.gradients.back().at(name))) << one.mesh << ", " << name;
    }
  }
}

TEST(ParityCheck, RefusesAMeshThatCannotRunBeforeAnythingStarts) {
  const ScratchFolder folder;
  const job::Job job = test::tiny_job(folder.path());
  try {
    check_parity(job, {mesh::parse_mesh("dp_shard=5"), mesh::parse_mesh("tp=4")});
    FAIL() << "12 sequences over 5 batch ranks were accepted";
  } catch (const RequestError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("mesh dp_shard=5"));
    EXPECT_THAT(error.what(), testing::HasSubstr("mesh tp=4"));
  }
}

Trajectory made_up(double loss, double first, double second) {
  const auto gradient = [](double value) {
    return at::full({2}, value, at::TensorOptions().dtype(at::kDouble));
  };
  return {{loss}, {{{"a", gradient(first)}, {"b", gradient(second)}}}};
}

TEST(ParityCheck, DifferenceIsRelativeAndNamesTheWorst) {
  const Difference found = largest_difference(made_up(2.0, 1.0, 0.5), made_up(2.002, 1.001, 0.501));
  EXPECT_NEAR(found.loss, 1e-3, 1e-12);
  EXPECT_NEAR(found.gradient, 2e-3, 1e-12);
  EXPECT_EQ(found.worst_parameter, "b");
}

TEST(ParityCheck, NoiseAroundAnExactZeroIsMeasuredAgainstTheStep) {
  const Difference found = largest_difference(made_up(1.0, 1.0, 1e-18), made_up(1.0, 1.0, -1e-18));
  EXPECT_LT(found.gradient, tolerance_of(DType::float64).gradient);
}

TEST(ParityCheck, NotANumberNeverPasses) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_GT(largest_difference(made_up(1.0, 1.0, 1.0), made_up(nan, 1.0, 1.0)).loss, 1e100);
  EXPECT_GT(largest_difference(made_up(1.0, 1.0, 1.0), made_up(1.0, nan, 1.0)).gradient, 1e100);
}

}  // namespace
}  // namespace ndmesh::train
