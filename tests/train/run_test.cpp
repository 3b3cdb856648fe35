#include "ndmesh/train/run.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <nlohmann/json.hpp>

#include "ndmesh/base/error.h"
#include "ndmesh/measure/memory_ledger.h"
#include "ndmesh/plan/memory.h"
#include "train/models.h"
#include "train/scratch_folder.h"

namespace ndmesh::train {
namespace {

namespace fs = std::filesystem;

std::vector<nlohmann::json> record_of(const fs::path& folder) {
  std::ifstream file(folder / "record.jsonl");
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(file, line);) {
    lines.push_back(nlohmann::json::parse(line));
  }
  return lines;
}

class Run : public testing::Test {
 protected:
  static void SetUpTestSuite() { measure::install_counting_allocator(); }

  RunSummary run(const job::Job& job, const std::atomic<bool>* stop = nullptr) {
    return run_training(open_inputs(job), {folder_.path(), stop, {}});
  }

  ScratchFolder folder_;
  job::Job job_ = test::tiny_job(folder_.path());
};

TEST_F(Run, WritesRecordJobAndModel) {
  job_.mesh.dp_shard = 2;
  job_.data.eval_files = job_.data.files;
  job_.train.eval_every = 2;
  job_.train.eval_batches = 1;
  EXPECT_EQ(run(job_).steps, 5);
  const auto lines = record_of(folder_.path());
  EXPECT_EQ(lines.front()["kind"], "identity");
  EXPECT_EQ(lines.front()["world"], 2);
  std::vector<std::int64_t> steps;
  std::size_t evaluations = 0;
  for (const auto& line : lines) {
    if (line["kind"] == "step") {
      steps.push_back(line["step"].get<std::int64_t>());
      EXPECT_EQ(line["tokens"], 12 * 16);
      EXPECT_GT(line["grad_norm"].get<double>(), job_.train.clip);
      EXPECT_TRUE(line["exposed"].contains("dp_shard/all_gather"));
    }
    evaluations += line["kind"] == "evaluation" ? 1 : 0;
  }
  EXPECT_THAT(steps, testing::ElementsAre(1, 2, 3, 4, 5));
  EXPECT_EQ(evaluations, 2U);
  const job::Job again = job::read_job(folder_.path() / "job.yaml", {});
  EXPECT_EQ(again.mesh, job_.mesh);
  const ModelWeights weights(folder_.path() / "model", job::model_of(job_));
}

TEST_F(Run, StoppedFinishesTheStepAndWritesTheModel) {
  const std::atomic<bool> stop{true};
  const RunSummary summary = run(job_, &stop);
  EXPECT_TRUE(summary.interrupted);
  EXPECT_EQ(summary.steps, 1);
  EXPECT_TRUE(fs::exists(folder_.path() / "model" / "model.safetensors"));
}

TEST_F(Run, GoesOnFromItsOwnModel) {
  job_.train.steps = 1;
  job_.optimizer.lr = 0;  // the written model is the initial one
  run(job_);
  job::Job next = job_;
  next.model.path = (folder_.path() / "model").string();
  next.mesh.dp_shard = 3;
  next.run.seed = 99;  // must not matter: values come from the file; data order is not shuffled
  job_.data.shuffle = next.data.shuffle = false;
  const double fresh = run(job_).last_loss;
  EXPECT_NEAR(run(next).last_loss, fresh, 1e-12 * fresh);
}

TEST_F(Run, GradientFileHoldsFullGradientsUnderTheirNames) {
  job_.mesh.dp_shard = 2;
  job_.debug.gradients = (folder_.path() / "gradients.safetensors").string();
  run(job_);
  const SafetensorsFile file(job_.debug.gradients);
  for (const model::ParameterSpec& parameter : job::model_of(job_).parameters()) {
    EXPECT_EQ(file.tensors().at(parameter.name).shape, parameter.shape);
    EXPECT_EQ(file.tensors().at(parameter.name).dtype, DType::float64);
  }
}

TEST_F(Run, GradientThatIsNotFiniteEndsTheRunBeforeTheWeightsChange) {
  job_.mesh.dp_shard = 2;
  job_.optimizer.lr = 1e300;  // the first update overflows, so the second gradient is not a number
  try {
    run(job_);
    FAIL() << "the run went on";
  } catch (const RunError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("step 2: the gradient is not finite"));
    EXPECT_THAT(error.what(), testing::HasSubstr("rank 0: "));
  }
  EXPECT_FALSE(fs::exists(folder_.path() / "model"));
}

/// A disk with room for one and a half models: the second save fails before anything is written, on all ranks, and
/// the first model stays.
TEST_F(Run, FullDiskEndsTheRunAndKeepsTheModelBefore) {
  const fs::path disk = folder_ / "disk";
  fs::create_directory(disk);
  if (::mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=1500k") != 0) {
    GTEST_SKIP() << "mounting a small disk needs root";
  }
  job_.mesh.dp_shard = 2;
  job_.train.steps = 1;
  run_training(open_inputs(job_), {disk, nullptr, {}});
  const std::string before = contents(disk / "model" / "model.safetensors");
  const std::int64_t bytes = 8 * job::model_of(job_).parameter_count();
  EXPECT_GE(static_cast<std::int64_t>(before.size()), bytes);
  try {
    run_training(open_inputs(job_), {disk, nullptr, {}});
    ADD_FAILURE() << "there was room for two";
  } catch (const RunError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr((disk / "model").string()));
    EXPECT_THAT(error.what(), testing::HasSubstr(std::to_string(bytes) + " bytes are to be written"));
  }
  EXPECT_EQ(contents(disk / "model" / "model.safetensors"), before);
  EXPECT_FALSE(fs::exists(disk / "model.partial"));
  ::umount(disk.c_str());
}

TEST_F(Run, TokensOutsideTheVocabularyAreRefusedBeforeAnythingStarts) {
  std::ofstream(folder_.path() / "tokens.u16", std::ios::binary | std::ios::app) << "\xff\xff";
  EXPECT_THROW(
      {
        try {
          open_inputs(job_);
        } catch (const RequestError& error) {
          EXPECT_THAT(error.what(), testing::HasSubstr("token 65535"));
          throw;
        }
      },
      RequestError);
}

}  // namespace
}  // namespace ndmesh::train
