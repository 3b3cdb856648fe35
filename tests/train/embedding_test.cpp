// What a program that embeds ndmesh relies on: runs leave the process as it was, and do not disturb each other.
#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/Allocator.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <clocale>
#include <csignal>
#include <thread>

#include "ndmesh/train/run.h"
#include "ndmesh/train/thread_count.h"
#include "train/models.h"
#include "train/scratch_folder.h"

namespace ndmesh::train {
namespace {

/// What a thread sees that starts now.
int threads_of_new_threads() {
  int count = 0;
  std::thread([&] { count = at::get_num_threads(); }).join();
  return count;
}

/// State of the process that others depend on.
struct ProcessState {
  const void* allocator = c10::GetAllocator(c10::DeviceType::CPU);
  at::ScalarType dtype = at::get_default_dtype_as_scalartype();
  bool deterministic = at::globalContext().deterministicAlgorithms();
  at::Tensor random = at::globalContext().defaultGenerator(c10::DeviceType::CPU).get_state();
  int interop_threads = at::get_num_interop_threads();
  int own_threads = at::get_num_threads();
  int new_threads = threads_of_new_threads();
  std::string locale = std::setlocale(LC_ALL, nullptr);
  std::filesystem::path folder = std::filesystem::current_path();
  std::vector<void (*)(int)> handlers = signal_handlers();
  bool gradients = at::GradMode::is_enabled();

  static std::vector<void (*)(int)> signal_handlers() {
    std::vector<void (*)(int)> handlers;
    for (int signal = 1; signal < NSIG; ++signal) {
      struct sigaction action {};
      handlers.push_back(sigaction(signal, nullptr, &action) == 0 ? action.sa_handler : nullptr);
    }
    return handlers;
  }
};

void expect_equal(const ProcessState& now, const ProcessState& before) {
  EXPECT_EQ(now.allocator, before.allocator);
  EXPECT_EQ(now.dtype, before.dtype);
  EXPECT_EQ(now.deterministic, before.deterministic);
  EXPECT_TRUE(now.random.equal(before.random)) << "the default generator was used";
  EXPECT_EQ(now.interop_threads, before.interop_threads);
  EXPECT_EQ(now.own_threads, before.own_threads);
  EXPECT_EQ(now.new_threads, before.new_threads);
  EXPECT_EQ(now.locale, before.locale);
  EXPECT_EQ(now.folder, before.folder);
  EXPECT_EQ(now.handlers, before.handlers);
  EXPECT_EQ(now.gradients, before.gradients);
}

/// One run in a folder of its own: its last loss, and what it wrote.
struct Outcome {
  double loss = 0;
  std::string weights;
  bool operator==(const Outcome&) const = default;
};

Outcome run(const std::vector<std::string>& overrides) {
  const ScratchFolder folder;
  const job::Job job = test::tiny_job(folder.path(), "tiny", overrides);
  const RunSummary summary = run_training(open_inputs(job), {folder.path(), nullptr, {}});
  return {summary.last_loss, contents(folder / "model" / "model.safetensors")};
}

const std::vector<std::string> sharded = {"mesh.dp_shard_size=2", "train.steps=3"};
const std::vector<std::string> replicated = {"mesh.dp_replicate_size=2", "train.steps=3", "run.seed=5"};

TEST(Embedding, ARunLeavesTheProcessAsItWas) {
  std::thread([] {  // where a thread count of one's own shows
    const int others = threads_of_new_threads();
    set_thread_count(3);
    EXPECT_EQ(threads_of_new_threads(), others);
    const ProcessState before;
    run({"mesh.dp_shard_size=2", "train.steps=2", "run.threads=" + std::to_string(others + 1)});
    expect_equal({}, before);
    EXPECT_EQ(before.own_threads, 3);
  })
      .join();
}

TEST(Embedding, RunsFollowOneAnother) {
  const Outcome first = run(sharded);
  EXPECT_NE(run(replicated), first);
  EXPECT_EQ(run(sharded), first);
}

TEST(Embedding, RunsOverlap) {
  const Outcome sharded_alone = run(sharded);
  const Outcome replicated_alone = run(replicated);
  Outcome sharded_beside, replicated_beside;
  std::thread other([&] { sharded_beside = run(sharded); });
  replicated_beside = run(replicated);
  other.join();
  EXPECT_EQ(sharded_beside, sharded_alone);
  EXPECT_EQ(replicated_beside, replicated_alone);
}

}  // namespace
}  // namespace ndmesh::train
