#include <gmock/gmock.h>

#include "ndmesh/model/config.h"
#include "ndmesh/plan/search/answer.h"

namespace ndmesh::plan {
namespace {

// Questions whose answers are known from arithmetic or from what was trained in practice.

TrainingQuestion ask(const std::string& preset, const std::string& cluster, const std::string& keys) {
  return training_question(job::parse_job("cluster: " + cluster + "\n" + keys, "test.yaml", {}),
                           model::preset(preset), cluster::parse_cluster(cluster, "test"));
}

std::int64_t states(const Plan& plan) {
  const MemoryBytes& bytes = plan.worst.at_peak;
  return bytes[MemoryCategory::parameters] + bytes[MemoryCategory::master_weights] +
         bytes[MemoryCategory::gradients] + bytes[MemoryCategory::optimizer];
}

const Plan& baseline(const TrainingAnswer& answer, const std::string& name) {
  for (const Baseline& candidate : answer.baselines) {
    if (candidate.name == name) return candidate.plan.value();
  }
  throw std::out_of_range(name);
}

double seconds_with(const std::string& preset, const std::string& cluster, const std::string& keys) {
  const TrainingAnswer found = answer(ask(preset, cluster, keys), 1);
  EXPECT_TRUE(found.fits()) << keys;
  return found.result.plans.front().time.seconds;
}

constexpr double llama_70b_states = 16.0 * 70553706496 / 8;  // 16 bytes a parameter over 8 devices

void expect_nothing_fits(const std::string& cluster) {
  const TrainingAnswer found = answer(ask("llama-3-70b", cluster, "batch: {seq_len: 8192, global: 64}"), 10);
  EXPECT_FALSE(found.fits());
  const Plan& zero3 = baseline(found, "zero 3 over all");
  EXPECT_FALSE(zero3.fits);
  EXPECT_NEAR(static_cast<double>(states(zero3)), llama_70b_states, 0.002 * llama_70b_states);
  ASSERT_FALSE(found.fixes.empty());
  for (const Fix& fix : found.fixes) {
    EXPECT_TRUE(fix.plan.fits) << fix.change;
    EXPECT_GT(fix.plan.time.seconds, 0) << fix.change;
  }
}

TEST(GoldenPlans, Llama70BFitsOnNoMeshOfEight80GBDevices) {
  expect_nothing_fits("8xH100-SXM");
  expect_nothing_fits("8xA100-SXM");
}

TEST(GoldenPlans, Llama70BFitsOnNoMeshOfEightH200WithoutOffload) {
  expect_nothing_fits("8xH200-SXM");
}

TEST(GoldenPlans, Llama8BFitsOnEightH100) {
  const TrainingAnswer found =
      answer(ask("llama-3-8b", "8xH100-SXM", "batch: {seq_len: 8192, global: 64}"), 10);
  EXPECT_TRUE(found.fits());
  EXPECT_FALSE(baseline(found, "plain data parallel").fits);  // 16 bytes a parameter are 128 GB
  EXPECT_TRUE(baseline(found, "zero 3 over all").fits);
}

TEST(GoldenPlans, A1BModelTakesDataParallelismAlone) {
  const TrainingAnswer found =
      answer(ask("llama-3.2-1b", "8xH100-SXM", "batch: {seq_len: 4096, global: 256}"), 1);
  const mesh::MeshSizes& mesh = found.result.plans.front().candidate.mesh;
  EXPECT_EQ(mesh.tp * mesh.cp * mesh.pp, 1) << mesh.name();
  EXPECT_EQ(mesh.dp_shard * mesh.dp_replicate, 8);
}

TEST(GoldenPlans, TheSameLongSequenceIsSplitOnOneClusterAndNotOnAnother) {
  const std::string keys = "batch: {seq_len: 32768, global: 8}";
  EXPECT_EQ(answer(ask("llama-3.2-1b", "8xH200-SXM", keys), 1).result.plans.front().candidate.mesh.cp, 1);
  EXPECT_GT(answer(ask("llama-3.2-1b", "2x8xH100-SXM", keys), 1).result.plans.front().candidate.mesh.cp, 1);
}

// Llama 3.1 405B was trained on 16,384 H100 with tp 8 and pp 16.
TEST(GoldenPlans, SlowLlama405BOn16384DevicesTakesTensorEightAndPipeline) {
  const std::string keys = "batch: {seq_len: 8192, global: 2048}\n";
  const double best = seconds_with("llama-3.1-405b", "2048x8xH100-SXM", keys);
  const auto seconds_of = [&](const char* pp) {
    return seconds_with("llama-3.1-405b", "2048x8xH100-SXM",
                        keys + "mesh: {tp_size: 8, pp_size: " + pp + "}");
  };
  EXPECT_LE(seconds_of("16"), 1.05 * best);
  EXPECT_LE(seconds_of("8"), 1.10 * best);
}

TEST(GoldenPlans, SlowDeepSeekV3FitsOn1024And2048Devices) {
  for (const char* cluster : {"128x8xH100-SXM", "256x8xH100-SXM"}) {
    EXPECT_TRUE(answer(ask("deepseek-v3", cluster, "batch: {seq_len: 4096, global: 8192}"), 1).fits())
        << cluster;
  }
}

}  // namespace
}  // namespace ndmesh::plan
