#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/program.h"

/// The commands that run: train, parity, generate; their exit status, files and messages.
namespace ndmesh::testing_cli {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using Json = nlohmann::json;

class Runtime : public testing::Test {
 protected:
  Runtime() {
    std::string text;
    for (int i = 0; i < 400; ++i) {
      text += "line " + std::to_string(i * i % 97) + " of a text\n";
    }
    job_ = file_with("job.yaml", "model: {preset: llama-1m}\ndata: {files: [" + file_with("text.txt", text) +
                                     "]}\nbatch: {global: 4, micro: 1, seq_len: 32}\n"
                                     "train: {steps: 2}\nrun: {threads: 1}\n");
    folder_ = fs::path(job_).parent_path() / "run";
    fs::remove_all(folder_);
  }

  std::vector<std::string> train(std::vector<std::string> more = {}) const {
    std::vector<std::string> arguments = {"train", job_, "--out", folder_.string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  std::string job_;
  fs::path folder_;
};

TEST_F(Runtime, TrainWritesItsFolderAndTellsOnStandardErrorOnly) {
  const Result result = run(train({"mesh.dp_shard_size=2"}));
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("mesh dp_shard=2: 2 ranks"));
  EXPECT_THAT(result.err, HasSubstr("predicted       counted"));
  for (const char* name : {"job.yaml", "record.jsonl", "model/config.json", "model/model.safetensors"}) {
    EXPECT_TRUE(fs::exists(folder_ / name)) << name;
  }
}

TEST_F(Runtime, JsonIsTheOnlyThingOnStandardOutput) {
  const Json summary = Json::parse(run(train({"--json"})).out);
  EXPECT_EQ(summary["steps"], 2);
  EXPECT_EQ(summary["counted_memory"]["gradients"], summary["predicted_memory"]["gradients"]);
}

TEST_F(Runtime, AnOlderRecordIsNotOverwrittenUnasked) {
  EXPECT_EQ(run(train()).status, 0);
  const Result refused = run(train());
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, HasSubstr("--overwrite"));
  EXPECT_EQ(run(train({"--overwrite"})).status, 0);
}

TEST_F(Runtime, ImpossibleMeshesAreRefusedAllRulesAtOnceAndLeaveNoFolder) {
  const Result result = run(train({"mesh.tp_size=7", "mesh.dp_shard_size=3"}));
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("mesh.tp_size"));
  EXPECT_THAT(result.err, HasSubstr("batch.global"));
  EXPECT_FALSE(fs::exists(folder_));
}

TEST_F(Runtime, DevicesThatAreNotBuiltAreRefusedByName) {
  const Result result = run(train({"run.device=cuda"}));
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("cuda is not built yet"));
}

TEST_F(Runtime, FailureWhileRunningIsStatusOneWithTheFirstCause) {
  const std::string file = (folder_ / "missing" / "gradients.safetensors").string();
  const Result result = run(train({"debug.gradients=" + file, "mesh.dp_shard_size=2"}));
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, HasSubstr(file));
}

TEST_F(Runtime, ParitySaysWhetherItHeld) {
  const Json held = Json::parse(run({"parity", job_, "dp_shard=2", "precision.dtype=float64", "--json"}).out);
  EXPECT_EQ(held["reference"], "1");
  EXPECT_EQ(held["meshes"][0]["mesh"], "dp_shard=2");
  EXPECT_TRUE(held["meshes"][0]["held"].get<bool>());
  EXPECT_EQ(run({"parity", job_}).status, 2);
  EXPECT_EQ(run({"parity", job_, "dp_shrad=2"}).status, 2);
}

TEST_F(Runtime, GenerateContinuesTheTrainedModel) {
  ASSERT_EQ(run(train()).status, 0);
  const std::string model = (folder_ / "model").string();
  const Result text = run({"generate", model, "line", "--count", "5", "--ignore-eos"});
  EXPECT_EQ(text.status, 0) << text.err;
  const Json ids = Json::parse(
      run({"generate", model, "108 105", "--tokens", "--count", "5", "--json", "--ignore-eos"}).out);
  EXPECT_EQ(ids["prompt_tokens"], Json({108, 105}));
  EXPECT_EQ(ids["tokens"].size(), 5U);
  EXPECT_EQ(run({"generate", model, "1 x", "--tokens"}).status, 2);
  EXPECT_EQ(run({"generate", (folder_ / "nothing").string(), "x"}).status, 2);
}

TEST_F(Runtime, InterruptedItFinishesTheStepAndWritesTheModel) {
  const pid_t child = fork();
  if (child == 0) {
    const std::string out = folder_.string();
    dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
    execl(program().c_str(), "ndmesh", "train", job_.c_str(), "--out", out.c_str(), "train.steps=1000000",
          nullptr);
    _exit(127);
  }
  for (int i = 0; i < 300 && !fs::exists(folder_ / "record.jsonl"); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  kill(child, SIGTERM);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_TRUE(fs::exists(folder_ / "model" / "model.safetensors"));
}

}  // namespace
}  // namespace ndmesh::testing_cli
