#include <gmock/gmock.h>

#include "ndmesh/base/error.h"
#include "ndmesh/job/job.h"
#include "ndmesh/model/config.h"

/// What `train` refuses.
namespace ndmesh::job {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Job parse(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
  return parse_job(yaml, "runs/a.yaml", overrides);
}

Job trainable() {
  return parse(
      "model: {preset: llama-1m}\ndata: {files: [a.txt]}\nbatch: {global: 8, micro: 2, seq_len: 64}\n");
}

std::vector<std::string> refusals(const Job& job, const model::ModelSpec& model) {
  try {
    check_trainable(job, model);
  } catch (const RequestError& error) {
    return error.problems();
  }
  return {};
}

std::vector<std::string> refusals(const Job& job) {
  return refusals(job, model_of(job));
}

TEST(Check, AcceptsWhatCanRun) {
  Job job = trainable();
  EXPECT_TRUE(refusals(job).empty());
  EXPECT_EQ(accumulation(job), 4);
  job.mesh.dp_shard = 2;
  job.mesh.dp_replicate = 2;
  EXPECT_TRUE(refusals(job).empty());
  EXPECT_EQ(accumulation(job), 1);
}

TEST(Check, StrategiesThatDoNotRunYetAreRefusedByName) {
  Job job = trainable();
  job.mesh.cp = 2;
  EXPECT_THAT(refusals(job),
              testing::Contains(HasSubstr("mesh.cp_size is 2: context parallelism is not built yet")));
  job = trainable();
  job.mesh.ep = 2;
  job.mesh.dp_shard = 2;
  EXPECT_THAT(refusals(job),
              testing::Contains(HasSubstr("mesh.ep_size is 2: expert parallelism is not built yet")));
}

/// What a pipeline takes of stages, chunks and micro-batches; a message uses the keys of the job.
TEST(Check, PipelinesAreRefusedWhereTheirScheduleIsNone) {
  const auto spec = [](const std::string& layers) {
    return model::spec_from_config(R"({"model_type": "llama", "hidden_size": 32, "num_attention_heads": 2,
      "intermediate_size": 64, "vocab_size": 256, "ndmesh_tokens": "bytes", "num_hidden_layers": )" +
                                       layers + "}",
                                   "config.json");
  };
  struct Case {
    const char* layers;
    std::int64_t pp, micro_batches;
    schedule::Kind kind;
    std::int64_t chunks;
    std::vector<std::string> refused;
  };
  using schedule::Kind;
  for (const Case& one : std::vector<Case>{
           {"8", 8, 2, Kind::one_f_one_b, 1, {}},
           {"8", 4, 8, Kind::interleaved, 2, {}},
           {"8", 4, 8, Kind::interleaved, 0, {}},
           {"8", 4, 10, Kind::interleaved, 2, {}},
           {"8", 4, 11, Kind::interleaved, 2, {"11 micro-batches"}},
           {"6", 4, 8, Kind::interleaved, 2, {"6 layers"}},
           {"4", 8, 8, Kind::gpipe, 1, {"4 layers"}},
           {"8", 2, 8, Kind::gpipe, 2, {"pipeline.chunks: 2 with pipeline.schedule gpipe"}},
           {"8", 2, 8, Kind::interleaved, 1, {"pipeline.chunks: 1 with pipeline.schedule interleaved"}}}) {
    Job job = trainable();
    job.mesh.pp = one.pp;
    job.batch.global = one.micro_batches;
    job.batch.micro = 1;
    job.pipeline.schedule = one.kind;
    job.pipeline.chunks = one.chunks;
    const std::vector<std::string> found = refusals(job, spec(one.layers));
    ASSERT_EQ(found.size(), one.refused.size()) << testing::PrintToString(found);
    if (!found.empty()) {
      EXPECT_THAT(found.front(), HasSubstr(one.refused.front()));
    }
  }
}

TEST(Check, GivenStagesHoldEveryLayerOnce) {
  const auto with = [](const std::string& layers) {
    return refusals(parse("model: {preset: llama-1m}\ndata: {files: [a.txt]}\nmesh: {pp_size: 2}\n",
                          {"pipeline.layers=" + layers}));
  };
  EXPECT_TRUE(with("[4, 1]").empty());
  EXPECT_TRUE(with("cost").empty());
  EXPECT_THAT(with("[2, 2]"), ElementsAre(HasSubstr("pipeline.layers [2, 2] is 4 layers; the model has 5")));
  EXPECT_THAT(with("[2, 2, 1]"), ElementsAre(HasSubstr("pipeline.layers lists 3 stages; mesh.pp_size 2")));
  EXPECT_THROW(with("[5, 0]"), RequestError);
  EXPECT_THROW(with("balanced"), RequestError);
}

TEST(Check, WhatIsWorthASentence) {
  const auto with = [](const std::vector<std::string>& overrides) {
    const Job job = parse("model: {preset: llama-1m}\ndata: {files: [a.txt]}\n", overrides);
    const model::ModelSpec model = model_of(job);
    check_trainable(job, model);
    return notes_of(job, model);
  };
  EXPECT_TRUE(with({}).empty());
  EXPECT_TRUE(with({"mesh.pp_size=5", "batch.global=32", "batch.micro=1"}).empty());  // 4 / 36 of a step
  EXPECT_THAT(
      with({"mesh.pp_size=5", "batch.global=2", "batch.micro=1"}),  // (p - 1) / (m + p - 1)
      ElementsAre(HasSubstr("mesh.pp_size 5 with 2 micro-batches: the pipeline waits for 66.7 % of a step")));
  EXPECT_THAT(with({"mesh.pp_size=2", "batch.global=32", "batch.micro=1"}),
              ElementsAre(HasSubstr("5 layers")));
  EXPECT_TRUE(with({"mesh.pp_size=2", "batch.global=32", "batch.micro=1", "pipeline.layers=cost"}).empty());
}

TEST(Check, OnlyStagesByCostAreMeasured) {
  const auto with = [](const std::string& layers) {
    return refusals(parse("model: {preset: llama-1m}\ndata: {files: [a.txt]}\nmesh: {pp_size: 2}\n",
                          {"pipeline.measure=true", "pipeline.layers=" + layers}));
  };
  EXPECT_TRUE(with("cost").empty());
  EXPECT_THAT(with("even"), ElementsAre(HasSubstr("pipeline.measure true with pipeline.layers even")));
  EXPECT_THAT(with("[4, 1]"), ElementsAre(HasSubstr("allowed: pipeline.layers cost")));
}

TEST(Check, RanksOfAllAxesCountAsThreads) {
  Job job = trainable();
  job.batch.global = 1024;
  job.batch.micro = 1;
  job.mesh.dp_shard = 128;
  job.mesh.pp = 4;
  EXPECT_THAT(refusals(job), ElementsAre(HasSubstr("mesh pp=4,dp_shard=128 is 512 ranks")));
}

TEST(Check, ValuesThatOnlyPlansTakeAreRefusedByName) {
  for (const auto& [override, what] : std::vector<std::pair<std::string, std::string>>{
           {"mesh.dp_shard_size=auto",
            "mesh.dp_shard_size auto is not built yet for running; allowed: a number"},
           {"precision.fp8_products=true", "precision.fp8_products true is not"},
           {"adapter.rank=8", "adapter.rank 8 is not"}}) {
    const Job job = parse(
        "model: {preset: llama-1m}\ndata: {files: [a.txt]}\nbatch: {global: 8, micro: 2, seq_len: 64}\n",
        {override});
    EXPECT_THAT(refusals(job), ElementsAre(HasSubstr(what))) << override;
  }
}

TEST(Check, OffloadingParametersNeedsZeroThreeAndAnElementWiseRule) {
  Job job = trainable();
  job.shard.offload = Offload::all;
  EXPECT_TRUE(refusals(job).empty());
  job.shard.zero = 2;
  job.optimizer.name = OptimizerName::muon;
  EXPECT_THAT(
      refusals(job),
      ElementsAre(HasSubstr("shard.offload all with shard.zero 2: below zero 3 parameters never leave"),
                  HasSubstr("shard.offload all with optimizer.name muon")));
}

TEST(Check, Bfloat16MomentsNeedADecayThatRoundingLeaves) {
  Job job = trainable();
  job.precision.bf16_states = true;
  EXPECT_TRUE(refusals(job).empty());
  job.optimizer.beta2 = 0.999;
  EXPECT_THAT(refusals(job), ElementsAre(testing::AllOf(HasSubstr("optimizer.betas[1] is 0.999"),
                                                        HasSubstr("allowed: at most 0.99"))));
  job.optimizer.name = OptimizerName::sgd;
  EXPECT_TRUE(refusals(job).empty());
  job.optimizer.momentum = 0.995;
  EXPECT_THAT(refusals(job), ElementsAre(HasSubstr("optimizer.momentum is 0.995")));
  job.precision.bf16_states = false;
  EXPECT_TRUE(refusals(job).empty());
}

TEST(Check, FrozenPatternsMustNameParametersAndLeaveSome) {
  Job job = trainable();
  job.train.frozen = {"*.self_attn.*", "model.norm.weight"};
  EXPECT_TRUE(refusals(job).empty());
  job.train.frozen = {"*.self_attention.*", "model.norms.weight"};
  EXPECT_THAT(refusals(job), ElementsAre(HasSubstr("*.self_attention.* is the name of no parameter"),
                                         HasSubstr("did you mean model.norm.weight?")));
  job.train.frozen = {"model.*", "lm_head.weight"};
  EXPECT_THAT(refusals(job), ElementsAre(HasSubstr("freezes every parameter; allowed: at least one")));
}

TEST(Check, PlannedFamiliesAndKeysAreRefusedByName) {
  const auto reasons = [](const std::string& config) {
    return refusals(trainable(), model::spec_from_config(config, "config.json"));
  };
  EXPECT_THAT(reasons(R"({"model_type": "deepseek_v3"})"),
              testing::Contains(testing::AllOf(HasSubstr("family deepseek_v3 is planned, not run"),
                                               HasSubstr("routed experts, latent attention"),
                                               HasSubstr("allowed: llama, mistral, qwen2, qwen3"))));
  EXPECT_THAT(reasons(R"({"model_type": "llama", "hidden_act": "gelu"})"),
              testing::Contains(HasSubstr("hidden_act: \"gelu\" is not built")));
  EXPECT_THAT(refusals(trainable(), model::estimate("7B")),
              testing::Contains(HasSubstr("only the size is known")));
}

TEST(Check, ModelsThatDoNotRunYetAreRefusedByFeature) {
  const auto with = [](auto change) {
    model::ModelSpec spec = model::preset("llama-1m");
    change(spec);
    return refusals(trainable(), spec);
  };
  using Spec = model::ModelSpec;
  EXPECT_THAT(with([](Spec& s) { s.experts = model::Experts{.count = 4, .per_token = 2, .ffn = 8}; }),
              ElementsAre(HasSubstr("routed experts (model_type llama) are not built yet for running")));
  EXPECT_THAT(with([](Spec& s) { s.latent = model::LatentAttention{}; }), ElementsAre(HasSubstr("latent")));
  EXPECT_THAT(with([](Spec& s) { s.mtp_layers = 1; }), ElementsAre(HasSubstr("multi-token")));
  EXPECT_THAT(with([](Spec& s) { s.attention_sinks = true; }), ElementsAre(HasSubstr("attention sinks")));
  EXPECT_THAT(with([](Spec& s) { s.family = "estimate"; }), ElementsAre(HasSubstr("only the size is known")));
}

// The global batch is never altered: 32 sequences do not fit 23 batch ranks.
TEST(Check, BatchMustDivideAndTheNearestAreNamed) {
  Job job = trainable();
  job.mesh.dp_shard = 23;
  job.batch.global = 32;
  job.batch.micro = 1;
  const auto problems = refusals(job);
  ASSERT_EQ(problems.size(), 1U);
  for (const char* part : {"32", "23", "46", "batch.global", "batch.micro"}) {
    EXPECT_THAT(problems.front(), HasSubstr(part));
  }
  job.batch.micro = 2;
  job.mesh.dp_shard = 4;
  EXPECT_TRUE(refusals(job).empty());
  EXPECT_EQ(accumulation(job), 4);
}

TEST(Check, SequencesMustFitTheModel) {
  Job job = trainable();
  job.batch.seq_len = 100000;
  EXPECT_THAT(refusals(job), ElementsAre(HasSubstr("100000")));
  model::ModelSpec windowed = model::preset("llama-1m");
  windowed.sliding_window = 32;
  job.batch.seq_len = 33;
  EXPECT_THAT(refusals(job, windowed),
              ElementsAre(HasSubstr("sliding_window 32 is shorter than batch.seq_len 33")));
  job.batch.seq_len = 32;
  EXPECT_TRUE(refusals(job, windowed).empty());
}

TEST(Check, DataMustSuitTheModel) {
  Job job = trainable();
  job.data.files.clear();
  job.train.eval_every = 5;
  EXPECT_THAT(refusals(job), ElementsAre(HasSubstr("data.files"), HasSubstr("data.eval_files")));
  job = trainable();
  EXPECT_THAT(refusals(job, model::preset("llama-28m")), ElementsAre(HasSubstr("data.format text")));
}

TEST(Check, ZeroKeepsWholeCopiesOnlyWithOneShardRank) {
  Job job = trainable();
  job.shard.zero = 0;
  EXPECT_TRUE(refusals(job).empty());
  job.mesh.dp_shard = 2;
  EXPECT_THAT(refusals(job), ElementsAre(HasSubstr("shard.zero is 0, but mesh.dp_shard_size is 2")));
}

TEST(Check, MoreRanksThanThreadsAreRefused) {
  Job job = trainable();
  job.mesh.dp_shard = 512;
  job.batch.global = 1024;
  EXPECT_THAT(refusals(job), ElementsAre(HasSubstr("512 ranks")));
  job.mesh.dp_shard = 1 << 20;
  job.mesh.dp_replicate = 1 << 20;
  EXPECT_FALSE(refusals(job).empty());
}

TEST(Check, AModelMustBeNamed) {
  const Job job;
  EXPECT_THROW(model_of(job), RequestError);
}

}  // namespace
}  // namespace ndmesh::job
