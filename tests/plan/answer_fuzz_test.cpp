#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "ndmesh/base/error.h"
#include "ndmesh/model/config.h"
#include "ndmesh/plan/search/answer.h"

/// Random questions end in a refusal or in an answer whose numbers agree with each other.
namespace ndmesh::plan {
namespace {

class RandomJobs {
 public:
  explicit RandomJobs(unsigned seed) : generator_(seed) {}

  std::string pick(const std::vector<std::string>& values) { return values[generator_() % values.size()]; }

  std::string cluster() {
    return "{nodes: " + pick({"1", "1", "2", "3"}) + ", node: " + pick({"1", "2", "3", "4", "6", "8"}) + "x" +
           pick({"H100-SXM", "A100-SXM-40GB", "MI300X", "L40S", "H200-SXM"}) +
           ", nics: " + pick({"1x100G", "4x200G", "8x400G"}) +
           pick({"", ", oversubscription: 4", ", host_memory: 256GiB", ", input_rate: 100000",
                 ", storage: 1GB/s"}) +
           "}";
  }

  std::string job() {
    std::string yaml = "batch: {global: " + pick({"1", "8", "12", "64", "96"}) +
                       ", seq_len: " + pick({"64", "512", "1000", "1024"}) + sometimes(", micro: 2") + "}\n";
    yaml += "mesh: {dp_replicate_size: " + pick({"1", "2"}) + sometimes(", tp_size: 2") +
            sometimes(", pp_size: 2") + sometimes(", cp_size: 2") + sometimes(", ep_size: 2") + "}\n";
    yaml += "plan: {runtime: " + pick({"ndmesh", "megatron", "torchtitan", "deepspeed", "accelerate"}) +
            sometimes(", max_batch: 128") + sometimes(", tokens_per_second: 1e7") + "}\n";
    yaml += sometimes("recompute: " +
                      pick({"{policy: full}", "{offload: true}", "{policy: full, offload: true}"}) + "\n") +
            sometimes("shard: {offload: all}\n") + sometimes("adapter: {rank: 8}\n") +
            sometimes("checkpoint: {every: 10}\n");
    return yaml;
  }

 private:
  std::string sometimes(const std::string& text) { return generator_() % 6 == 0 ? text : ""; }

  std::mt19937 generator_;
};

void expect_sound(const TrainingAnswer& answer, const Plan& plan) {
  const mesh::MeshSizes& mesh = plan.candidate.mesh;
  EXPECT_EQ(mesh.world(), answer.question.problem.cluster.devices());
  EXPECT_EQ(micro_batches(plan) * plan.candidate.micro * mesh.batch_ranks(), plan.global_batch);
  EXPECT_LE(plan.worst.at_peak.total() + plan.worst.outside, plan.worst.reserved);
  EXPECT_EQ(plan.stages.size(), static_cast<std::size_t>(mesh.pp));
  for (const StageBudget& stage : plan.stages) EXPECT_LE(stage.reserved, plan.worst.reserved);
  EXPECT_TRUE(!plan.fits || plan.worst.reserved <= answer.allowed_bytes);
  const StepTime& time = plan.time;
  double sum = 0;
  for (const double part :
       {time.compute, time.exposed, time.bubble, time.optimizer, time.input, time.checkpoint, time.other}) {
    EXPECT_TRUE(std::isfinite(part) && part >= 0);
    sum += part;
  }
  EXPECT_NEAR(sum, time.seconds, 1e-9 * sum);
  double exposed = 0;
  for (const Exposed& entry : time.by_collective) exposed += entry.seconds;
  EXPECT_NEAR(exposed, time.exposed, 1e-9 * sum);
  EXPECT_GE(time.bubble_share, 0);
  EXPECT_LT(time.bubble_share, 1);
  EXPECT_GT(time.mfu, 0);
  EXPECT_LT(time.mfu, 1);
}

TEST(SlowAnswerFuzz, RandomJobsAreRefusedOrAnsweredSoundly) {
  RandomJobs random(5);
  int answered = 0;
  for (int i = 0; i < 60; ++i) {
    const std::string preset =
        random.pick({"llama-1m", "llama-1b", "llama-3-8b", "gpt-1.3b", "mixtral-8x7b", "llama-3-70b"});
    const std::string cluster = random.cluster();
    const std::string job = random.job();
    SCOPED_TRACE(preset + " on " + cluster + "\n" + job);
    try {
      const TrainingAnswer found =
          answer(training_question(job::parse_job("cluster: " + cluster + "\n" + job, "test.yaml", {}),
                                   model::preset(preset), cluster::parse_cluster(cluster, "test")),
                 3);
      ++answered;
      bool fits = true;
      for (const Plan& plan : found.result.plans) {
        expect_sound(found, plan);
        EXPECT_TRUE(fits || !plan.fits);  // those that do not fit come last
        fits = plan.fits;
      }
      for (const Fix& fix : found.fixes) EXPECT_TRUE(fix.plan.fits) << fix.change;
      EXPECT_EQ(explanation_of(found).size(), 7U);
    } catch (const RequestError& error) {
      EXPECT_FALSE(error.problems().empty());
    }
  }
  EXPECT_GE(answered, 20);
}

}  // namespace
}  // namespace ndmesh::plan
