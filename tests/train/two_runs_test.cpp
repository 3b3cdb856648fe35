#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/core/AutogradState.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <barrier>
#include <future>
#include <nlohmann/json.hpp>
#include <thread>

#include "ndmesh/measure/memory_ledger.h"
#include "ndmesh/train/run.h"
#include "train/models.h"
#include "train/scratch_folder.h"

/// Two training runs in one process, one after the other and at once: each is what it is alone, and the process is
/// what it was.
namespace ndmesh::train {
namespace {

/// What a run might leave changed for others.
struct ProcessState {
  int threads = at::get_num_threads();
  int threads_of_new = of_new_thread();
  bool grad_mode = c10::GradMode::is_enabled();
  bool inference_mode = c10::InferenceMode::is_enabled();
  bool multithreaded_autograd = c10::AutogradState::get_tls_state().get_multithreading_enabled();
  std::string dtype{at::get_default_dtype().name()};
  bool deterministic = at::globalContext().deterministicAlgorithms();
  std::vector<std::uint8_t> generator = generator_state();

  bool operator==(const ProcessState&) const = default;

 private:
  static int of_new_thread() {
    int threads = 0;
    std::thread([&] { threads = at::get_num_threads(); }).join();
    return threads;
  }
  static std::vector<std::uint8_t> generator_state() {
    const at::Tensor state = at::globalContext().defaultGenerator(at::kCPU).get_state();
    return {state.data_ptr<std::uint8_t>(), state.data_ptr<std::uint8_t>() + state.numel()};
  }
};

/// What does not depend on time.
struct Outcome {
  std::vector<nlohmann::json>
      steps;          ///< of each: loss, gradient norm, learning rate, tokens, bytes to and from the host
  std::string model;  ///< bytes of the file
  std::array<std::int64_t, 3> states{};  ///< counted bytes of parameters, gradients, optimizer
  bool operator==(const Outcome&) const = default;
};

void nothing() {}

/// Trains in a folder of its own. `each_line`: called where the run says something, after each step and at the end.
Outcome outcome_of(const job::Job& job, const std::function<void()>& each_line = nothing) {
  const ScratchFolder folder;
  const RunSummary summary =
      run_training(open_inputs(job), {folder.path(), nullptr, [&](const std::string&) { each_line(); }});
  Outcome outcome;
  outcome.model = contents(folder / "model" / "model.safetensors");
  outcome.states = {summary.counted[MemoryCategory::parameters], summary.counted[MemoryCategory::gradients],
                    summary.counted[MemoryCategory::optimizer]};
  std::ifstream record(folder / "record.jsonl");
  for (std::string text; std::getline(record, text);) {
    const nlohmann::json line = nlohmann::json::parse(text);
    if (line["kind"] == "step") {
      outcome.steps.push_back({line["loss"], line["grad_norm"], line["lr"], line["tokens"],
                               line["host"]["to_host"], line["host"]["to_device"]});
    }
  }
  return outcome;
}

/// Counts a run out of the barrier when it ends, also by an exception.
class Leave {
 public:
  explicit Leave(std::barrier<>& barrier) : barrier_(barrier) {}
  ~Leave() { barrier_.arrive_and_drop(); }
  Leave(const Leave&) = delete;

 private:
  std::barrier<>& barrier_;
};

class TwoRuns : public testing::Test {
 protected:
  static void SetUpTestSuite() { measure::install_counting_allocator(); }

  ScratchFolder data_;
  // They differ in all that a process has only once: threads of a rank, dtype, seed, what is recomputed and offloaded.
  const job::Job sharded_ =
      test::tiny_job(data_.path(), "tiny",
                     {"mesh.dp_shard_size=2", "run.seed=3", "recompute.policy=selective",
                      "recompute.offload=true", "shard.prefetch=2"});
  const job::Job replicated_ = test::tiny_job(data_.path(), "qwen3",
                                              {"mesh.dp_replicate_size=3", "run.seed=11", "run.threads=2",
                                               "precision.dtype=bfloat16", "batch.seq_len=24"});
};

TEST_F(TwoRuns, OneAfterTheOtherLeaveNothingBehind) {
  const ProcessState before;
  const Outcome first = outcome_of(sharded_);
  EXPECT_EQ(ProcessState(), before);
  const Outcome second = outcome_of(replicated_);
  EXPECT_EQ(ProcessState(), before);
  EXPECT_EQ(first.steps.size(), 5U);
  EXPECT_GT(first.steps.front().back(), 0);  // bytes that came back from the host
  EXPECT_NE(first.steps, second.steps);
  EXPECT_EQ(outcome_of(sharded_), first);
  EXPECT_EQ(outcome_of(replicated_), second);
}

/// Neither begins a step before the other has ended the one before: they run at once from the first step to the last.
TEST_F(TwoRuns, AtOnceAreEachWhatTheyAreAlone) {
  const ProcessState before;
  const Outcome first = outcome_of(sharded_);
  const Outcome second = outcome_of(replicated_);
  std::barrier<> together(2);
  const auto run = [&](const job::Job& job) {
    const Leave leave(together);
    return outcome_of(job, [&] { together.arrive_and_wait(); });
  };
  std::future<Outcome> other = std::async(std::launch::async, run, sharded_);
  EXPECT_EQ(run(replicated_), second);
  EXPECT_EQ(other.get(), first);
  EXPECT_EQ(ProcessState(), before);
}

}  // namespace
}  // namespace ndmesh::train
