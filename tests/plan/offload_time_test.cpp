#include <gtest/gtest.h>

#include <algorithm>

#include "ndmesh/plan/time/rates.h"
#include "ndmesh/plan/time/step_time.h"
#include "plan/time_support.h"

/// What activations that wait in host memory cost a step.
namespace ndmesh::plan {
namespace {

using test::ideal;

Problem on_one_node() {
  return test::small_problem(test::two_levels(1, 8, 300e9, 25e9));
}

Candidate on(const mesh::MeshSizes& sizes) {
  Candidate candidate;
  candidate.mesh = sizes;
  return candidate;
}

StepTime step(const Problem& problem, const Candidate& candidate) {
  return TimeModel(problem, ideal(problem.cluster)).step(candidate);
}

double exposed(const StepTime& time, const std::string& what) {
  const auto found = std::ranges::find(time.by_collective, what, &Exposed::what);
  return found == time.by_collective.end() ? 0 : found->seconds;
}

/// What one micro-batch of 2048 tokens keeps of a block of small_llama: eight tensors as wide as hidden (block input,
/// its norm, queries, keys, values, attention's output, the sum, its norm), gate, up and their product, all of 2
/// bytes an element; float32 statistics of two norms and of 16 heads.
constexpr double kept_of_block = 2048 * (2.0 * (8 * 2048 + 3 * 5632) + 4 * (2 + 16));
constexpr double input_of_block = 2048 * 2.0 * 2048;

// 64 micro-batches over a link of 25 GB/s, once in each direction; the thread that computes waits for it.
TEST(OffloadTime, OffloadedActivationsPayTheHostLink) {
  using Policy = job::Recompute::Policy;
  const Problem problem = on_one_node();
  const auto expect_bytes = [&](const job::Recompute& recompute, double of_micro_batch) {
    Candidate candidate = on({});
    candidate.recompute = recompute;
    const StepTime device = step(problem, candidate);
    candidate.offload_activations = true;
    const StepTime host = step(problem, candidate);
    const double one_way = 64 * of_micro_batch / 25e9;
    EXPECT_NEAR(exposed(host, "host/offload"), one_way, 1e-9 * one_way);
    EXPECT_NEAR(exposed(host, "host/reload"), one_way, 1e-9 * one_way);
    EXPECT_NEAR(host.seconds, device.seconds + 2 * one_way, 1e-9 * host.seconds);
    EXPECT_DOUBLE_EQ(host.compute, device.compute);
  };
  expect_bytes({}, 8 * kept_of_block);
  expect_bytes({.policy = Policy::full}, 8 * input_of_block);
  expect_bytes({.policy = Policy::every, .layers = 4}, 2 * input_of_block + 6 * kept_of_block);
  const job::Recompute three{.policy = Policy::budget,
                             .bytes = static_cast<std::int64_t>(3 * input_of_block + 5 * kept_of_block)};
  expect_bytes(three, 3 * input_of_block + 5 * kept_of_block);
  expect_bytes({.policy = Policy::budget, .bytes = 0}, 8 * input_of_block);
  expect_bytes({.policy = Policy::budget, .bytes = std::int64_t{1} << 40}, 8 * kept_of_block);
}

// Two stages of four blocks each send half of it, at the same time.
TEST(OffloadTime, StagesOffloadTheirOwnActivations) {
  const Problem problem = on_one_node();
  Candidate candidate = on({.pp = 2});
  candidate.offload_activations = true;
  const StepTime time = step(problem, candidate);
  const double one_way = 64 * 4 * kept_of_block / 25e9;
  EXPECT_NEAR(exposed(time, "host/offload"), one_way, 1e-9 * one_way);
  EXPECT_NEAR(exposed(time, "host/reload"), one_way, 1e-9 * one_way);
}

// Values that come over the host link do not hide under activations that cross it too.
TEST(OffloadTime, OneThingAtATimeCrossesTheHostLink) {
  Problem problem = on_one_node();
  problem.cluster.device.host_bandwidth = 1e9;
  Candidate candidate = on({.dp_shard = 8});
  candidate.zero = 3;
  candidate.offload = job::Offload::all;
  const StepTime without = step(problem, candidate);
  candidate.offload_activations = true;
  EXPECT_DOUBLE_EQ(exposed(step(problem, candidate), "dp_shard/all_gather"),
                   exposed(without, "dp_shard/all_gather"));
}

// A core sends to memory that is its own: a copy reads and writes it. Of other devices the link must be known.
TEST(OffloadTime, TheHostLinkOfACoreIsItsMemory) {
  cluster::Device device = test::round_device();
  EXPECT_EQ(host_bandwidth(device), 25e9);
  device.host_bandwidth = 0;
  EXPECT_EQ(host_bandwidth(device), 0);
  device.name = "cpu";
  EXPECT_EQ(host_bandwidth(device), 0.5e12);
}

}  // namespace
}  // namespace ndmesh::plan
