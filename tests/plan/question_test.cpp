#include "ndmesh/plan/search/question.h"

#include <gmock/gmock.h>

#include "ndmesh/base/error.h"
#include "ndmesh/model/config.h"

namespace ndmesh::plan {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

TrainingQuestion ask(const std::string& yaml, const std::string& preset = "llama-3-8b",
                     const std::string& cluster = "8xH100-SXM") {
  return training_question(job::parse_job("cluster: " + cluster + "\n" + yaml, "test.yaml", {}),
                           model::preset(preset), cluster::parse_cluster(cluster, "test"));
}

TEST(Question, HoldsWhatIsGivenAndOpensTheRest) {
  const Held open = ask("batch: {global: 8}").held;
  for (const mesh::Axis axis : mesh::all_axes) EXPECT_EQ(open.size(axis), std::nullopt);
  EXPECT_FALSE(open.micro || open.zero || open.reshard || open.schedule || open.chunks || open.recompute ||
               open.order);
  const Held held = ask(R"(
batch: {global: 8, micro: 2}
mesh: {tp_size: 2, cp_size: 1, pp_size: 4, ep_size: 1, order: [tp, pp, cp, dp_shard, dp_replicate]}
shard: {zero: 1, reshard: false, offload: all}
pipeline: {schedule: interleaved, chunks: 2}
recompute: {policy: {every: 2}}
)")
                        .held;
  EXPECT_EQ(held.tp, 2);
  EXPECT_EQ(held.cp, 1);
  EXPECT_EQ(held.pp, 4);
  EXPECT_EQ(held.ep, 1);
  EXPECT_EQ(held.dp_shard, std::nullopt);
  EXPECT_EQ(held.micro, 2);
  EXPECT_EQ(held.zero, 1);
  EXPECT_EQ(held.reshard, false);
  EXPECT_EQ(held.offload, job::Offload::all);
  EXPECT_EQ(held.schedule, schedule::Kind::interleaved);
  EXPECT_EQ(held.chunks, 2);
  EXPECT_EQ(held.recompute, (job::Recompute{.policy = job::Recompute::Policy::every, .layers = 2}));
  EXPECT_EQ((*held.order)[1], mesh::Axis::pp);
}

TEST(Question, AutoTakesWhatTheOtherAxesLeave) {
  const Held held = ask("mesh: {dp_shard_size: auto, tp_size: 2}").held;
  EXPECT_EQ(held.dp_shard, std::nullopt);
  EXPECT_EQ(held.dp_replicate, 1);
  EXPECT_EQ(held.tp, 2);
}

TEST(Question, SaysWhatItAssumes) {
  const TrainingQuestion question = ask("", "llama-3-8b", "2x8xH100-SXM");
  EXPECT_EQ(question.problem.precision.compute, DType::bfloat16);
  EXPECT_EQ(question.problem.seq_len, 4096);
  EXPECT_EQ(question.problem.global_batch, 16);
  EXPECT_THAT(question.assumed, Contains(HasSubstr("precision.dtype is not given: planned for bfloat16")));
  EXPECT_THAT(question.assumed, Contains(HasSubstr("batch.seq_len is not given: planned for 4096 tokens")));
  EXPECT_THAT(question.assumed, Contains(HasSubstr("batch.global is not given: planned for 16 sequences")));
  EXPECT_THAT(ask("", "llama-3-8b", "8xV100-SXM").assumed, Contains(HasSubstr("as float16 only")));
  const TrainingQuestion given = ask("precision: {dtype: float32}\nbatch: {global: 4, seq_len: 128}");
  EXPECT_EQ(given.problem.precision.compute, DType::float32);
  EXPECT_EQ(given.problem.seq_len, 128);
  EXPECT_THAT(given.assumed, IsEmpty());
  const TrainingQuestion estimated = training_question(job::parse_job("", "", {}), model::estimate("70B"),
                                                       cluster::parse_cluster("8xH100-SXM", ""));
  EXPECT_THAT(estimated.assumed,
              Contains(HasSubstr("only the model's size is known: 70,000,000,000 parameters")));
  EXPECT_THAT(estimated.assumed, Contains(HasSubstr("cluster is not given")));
}

TEST(Question, TakesTheWishes) {
  const TrainingQuestion question = ask(R"(
batch: {global: 64}
plan: {headroom: 0.1, max_batch: 256, tokens: 864e9, days: 10, tokens_per_second: 1000, runtime: deepspeed}
expert: {skew: 1.5}
adapter: {rank: 8}
optimizer: {name: muon}
checkpoint: {every: 100}
)");
  EXPECT_EQ(question.max_batch, 256);
  EXPECT_DOUBLE_EQ(question.tokens_per_second, 1e6);
  EXPECT_EQ(question.problem.headroom, 0.1);
  EXPECT_EQ(question.problem.profile.name, "deepspeed");
  EXPECT_EQ(question.problem.context, job::ContextKind::alltoall);  // the only one that it has
  EXPECT_EQ(question.problem.loss_chunk, 0);
  EXPECT_EQ(question.problem.expert_skew, 1.5);
  EXPECT_EQ(question.problem.adapter.rank, 8);
  EXPECT_EQ(question.problem.optimizer, job::OptimizerName::muon);
  EXPECT_EQ(question.problem.checkpoint_every, 100);
  EXPECT_EQ(ask("").max_batch, ask("").problem.global_batch);
  EXPECT_EQ(ask("").problem.loss_chunk, 256);  // the job's default, which this runtime keeps to
}

TEST(Question, RefusesImpossibleWishes) {
  try {
    ask("batch: {global: 64}\nplan: {max_batch: 32, days: 10}");
    FAIL() << "accepted";
  } catch (const RequestError& error) {
    EXPECT_THAT(
        error.problems(),
        testing::ElementsAre("plan.max_batch: 32 is below batch.global 64; allowed: 0, or 64 and more",
                             HasSubstr("plan.tokens 0 and plan.days 10 need each other")));
  }
}

// A process on an accelerator has its context and communicators under every runtime; on a core it has none.
TEST(Question, GatheredUnitsAreNdmeshsOwn) {
  const std::string units = "shard: {unit: {blocks: 2}, prefetch: 3, gathered_limit: 1000}\n";
  const MemoryProfile memory = ask(units).problem.profile.memory;
  EXPECT_EQ(memory.unit_blocks, 2);
  EXPECT_EQ(memory.gathered_units, 4);
  EXPECT_EQ(memory.gathered_limit, 1000);
  const auto problems_of = [](const std::string& yaml) -> std::vector<std::string> {
    try {
      ask(yaml);
    } catch (const RequestError& error) {
      return error.problems();
    }
    return {};
  };
  EXPECT_THAT(problems_of(units + "plan: {runtime: megatron}"),
              testing::ElementsAre(HasSubstr("shard.unit is for plan.runtime ndmesh"),
                                   HasSubstr("shard.prefetch"), HasSubstr("shard.gathered_limit")));
}

/// Of the search, which asks before it starts.
std::vector<std::string> refusals(const std::string& yaml, const std::string& cluster = "8xH100-SXM") {
  const TrainingQuestion question = ask(yaml, "llama-3-8b", cluster);
  return broken_by(question.problem, question.held);
}

TEST(Question, OffloadOfActivationsIsHeldWhereTheRuntimeHasIt) {
  EXPECT_FALSE(ask("").held.offload_activations);
  const std::string offload = "recompute: {offload: true";
  EXPECT_TRUE(ask(offload + "}").held.offload_activations);
  for (const char* const runtime : {"megatron", "torchtitan", "accelerate"}) {
    EXPECT_THAT(refusals(offload + "}\nplan: {runtime: " + runtime + "}"),
                testing::ElementsAre("recompute.offload: true is not planned for " + std::string(runtime) +
                                     "; allowed: false"));
  }
  EXPECT_TRUE(ask(offload + "}\nplan: {runtime: deepspeed}").held.offload_activations);
  EXPECT_THAT(
      refusals(offload + ", policy: none}\nplan: {runtime: deepspeed}"),
      testing::ElementsAre("recompute.offload: true with recompute.policy none is nothing that "
                           "deepspeed has; allowed: recompute.policy full, or recompute.offload false"));
}

TEST(Question, OffloadNeedsAKnownHostLink) {
  const std::string device = "device: {name: X1, memory: 16GiB, bf16_flops: 10T, memory_bandwidth: 50GB/s";
  const auto cluster = [&](const std::string& rest) {
    return "{" + device + rest + "}, devices_per_node: 2, pcie: {bandwidth: 20GB/s}}";
  };
  const std::string both = "shard: {offload: optimizer}\nrecompute: {offload: true}";
  EXPECT_THAT(
      refusals(both, cluster("")),
      testing::ElementsAre(
          HasSubstr("shard.offload: optimizer, but the bandwidth of device X1 to its host is not known"),
          HasSubstr("recompute.offload: true, but the bandwidth of device X1 to its host is not known")));
  EXPECT_THAT(refusals(both, cluster(", host_bandwidth: 20GB/s")), IsEmpty());
}

TEST(Question, DevicesHaveAContextAndCoresHaveNone) {
  for (const char* const runtime : {"ndmesh", "megatron", "torchtitan", "deepspeed", "accelerate"}) {
    const TrainingQuestion question = ask("plan: {runtime: " + std::string(runtime) + "}");
    EXPECT_EQ(question.problem.profile.memory.context, std::int64_t{512} << 20) << runtime;
    EXPECT_EQ(question.problem.profile.memory.communicator, std::int64_t{256} << 20) << runtime;
  }
  const std::string cores =
      "{device: {name: cpu, memory: 16GiB, fp32_flops: 1T, memory_bandwidth: 50GB/s}, "
      "devices_per_node: 2, pcie: {bandwidth: 20GB/s}}";
  EXPECT_EQ(ask("", "llama-1m", cores).problem.profile.memory.context, 0);
}

}  // namespace
}  // namespace ndmesh::plan
