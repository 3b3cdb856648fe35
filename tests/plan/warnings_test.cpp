#include <gmock/gmock.h>

#include <algorithm>

#include "ndmesh/model/config.h"
#include "ndmesh/plan/search/answer.h"

/// Every row of the table of warnings: a job that meets its condition and one that does not.
namespace ndmesh::plan {
namespace {

using testing::HasSubstr;

TrainingQuestion ask(const std::string& preset, const std::string& cluster, const std::string& yaml) {
  return training_question(job::parse_job("precision: {dtype: bfloat16}\n" + yaml, "test.yaml", {}),
                           model::preset(preset), cluster::parse_cluster(cluster, "test"));
}

/// An answer of one plan and its warnings, without baselines and fixes.
TrainingAnswer answer_to(const TrainingQuestion& question) {
  TrainingAnswer found{.question = question,
                       .allowed_bytes = allowed_bytes(question.problem),
                       .result = search(question.problem, constants_for(question.problem), question.held, 1),
                       .baselines = {},
                       .without = {},
                       .warnings = {},
                       .fixes = {}};
  found.warnings = warnings_of(found);
  return found;
}

/// The text of a warning; empty when it is not given.
std::string text_of(const TrainingQuestion& question, const std::string& name) {
  for (const Warning& warning : answer_to(question).warnings) {
    if (warning.name == name) return warning.text;
  }
  return {};
}

struct Doubt {
  std::string name;
  std::string preset, cluster, yaml;  ///< a job that meets the condition
  std::string text;                   ///< what the warning says, in part
  std::string other_cluster, other_yaml;
};

const std::vector<Doubt>& doubts() {
  static const std::vector<Doubt> list = {
      {"not reached", "llama-1m", "2xH100-SXM", "plan: {tokens: 1e15, days: 1}",
       "11.57 G tokens/s are wanted, and the best plan gives", "2xH100-SXM", "plan: {tokens: 1e6, days: 1}"},
      {"only planned", "llama-3-8b", "8xH100-SXM", "mesh: {tp_size: 2, pp_size: 2, cp_size: 2}",
       "does not run this layout yet", "8xH100-SXM",
       "mesh: {tp_size: 2, pp_size: 2, cp_size: 2}\nplan: {runtime: megatron}"},
      {"tp across nodes", "llama-3-8b", "2x8xH100-SXM", "mesh: {tp_size: 16}",
       "tp leaves the nvlink domain for network", "2x8xH100-SXM",
       "mesh: {tp_size: 8, dp_shard_size: 2, dp_replicate_size: 1, pp_size: 1, cp_size: 1}"},
      {"fsdp across nodes", "llama-3-8b", "2x8xH100-SXM", "mesh: {dp_shard_size: 16}\nshard: {zero: 3}",
       "dp_shard leaves the nvlink domain for network", "2x8xH100-SXM",
       "mesh: {dp_shard_size: 8, dp_replicate_size: 2}\nshard: {zero: 3}"},
      {"ep across nodes", "mixtral-8x7b", "2x8xH100-SXM", "mesh: {ep_size: 8, etp_size: 2}",
       "every token crosses it twice", "2x8xH100-SXM", "mesh: {dp_shard_size: 16, ep_size: 8, etp_size: 1}"},
      {"tiny layers", "llama-1m", "8xH100-SXM",
       "batch: {seq_len: 1024}\nmesh: {dp_shard_size: 8}\nshard: {zero: 3}",
       "gathering it is a matter of latency", "8xH100-SXM",
       "batch: {seq_len: 1024}\nmesh: {dp_shard_size: 8}\nshard: {zero: 1}"},
      {"short context", "llama-3-8b", "8xH100-SXM", "batch: {seq_len: 2048}\nmesh: {cp_size: 2}",
       "cp 2 with sequences of 2048 tokens, where attention is", "8xH100-SXM",
       "batch: {seq_len: 2048}\nmesh: {cp_size: 1}"},
      {"unequal stages", "llama-3-8b", "3xH100-SXM",
       "mesh: {pp_size: 3}\npipeline: {schedule: 1f1b}\nrecompute: {policy: full}",
       "32 layers on 3 stages: 2 of 11 and 1 of 10", "4xH100-SXM",
       "mesh: {pp_size: 4}\npipeline: {schedule: 1f1b}"},
      {"bubble", "llama-3-8b", "8xH100-SXM",
       "batch: {global: 8, micro: 1}\nmesh: {pp_size: 8}\npipeline: {schedule: 1f1b}",
       "8 micro-batches on 8 stages", "2xH200-SXM",
       "batch: {global: 256, micro: 1}\nmesh: {pp_size: 2}\npipeline: {schedule: 1f1b}"},
      {"exposed", "llama-3-8b", "{nodes: 2, node: 8xH100-SXM, nics: 1x100G}", "mesh: {tp_size: 16}",
       "of a step is exposed communication", "8xH100-SXM", "mesh: {dp_shard_size: 8}"},
      {"small local batch", "llama-3-8b", "8xH100-SXM",
       "batch: {global: 8, micro: 1, seq_len: 1024}\nmesh: {dp_shard_size: 8}",
       "a forward works on 1024 tokens a rank", "8xH100-SXM",
       "batch: {global: 16, micro: 2, seq_len: 1024}\nmesh: {dp_shard_size: 8}"},
      {"batch limits dp", "llama-3-8b", "8xH100-SXM",
       "batch: {global: 2}\nmesh: {dp_shard_size: 2, tp_size: 4}",
       "the batch of 2 sequences feeds at most 2 batch ranks; on 8 devices", "8xH100-SXM",
       "batch: {global: 2}\nmesh: {dp_shard_size: 2, tp_size: 4}\nplan: {max_batch: 4}"},
      {"large batch", "llama-3-8b", "8xH100-SXM", "batch: {global: 8192, seq_len: 8192}",
       "a step takes 67,108,864 tokens", "8xH100-SXM", "batch: {global: 64, seq_len: 8192}"},
      {"input rate", "llama-1m", "{node: 2xH100-SXM, input_rate: 1000}", "batch: {global: 2, seq_len: 1000}",
       "the input brings 1.00 k tokens/s, and a step waits for it 1.9", "2xH100-SXM",
       "batch: {global: 2, seq_len: 1000}"},
      {"padding", "gpt-1.3b", "8xH100-SXM",
       "batch: {seq_len: 2048}\nmesh: {tp_size: 8}\nplan: {runtime: megatron}",
       "the vocabulary is padded from 50257 to 51200 for tp 8", "8xH100-SXM",
       "batch: {seq_len: 2048}\nmesh: {tp_size: 8}"},
      {"shared KV heads", "llama-3-8b", "2x8xH100-SXM", "mesh: {tp_size: 16}",
       "tp 16 with 8 KV heads: each head is held and computed 2 times", "8xH100-SXM", "mesh: {tp_size: 8}"},
      {"MoE skew", "mixtral-8x7b", "2x8xH200-SXM", "expert: {skew: 1.5}",
       "the busiest expert rank has 1.50 times the mean", "2x8xH200-SXM", "expert: {skew: 1.1}"},
      {"host memory", "llama-3-8b", "8xH100-SXM", "shard: {offload: optimizer}",
       "the cluster does not say how much there is", "{node: 8xH100-SXM, host_memory: 1TiB}",
       "shard: {offload: optimizer}"},
      {"checkpoints", "llama-3-8b", "{node: 8xH100-SXM, storage: 1GB/s}", "checkpoint: {every: 10}",
       "writing checkpoints takes", "{node: 8xH100-SXM, storage: 1GB/s}", "checkpoint: {every: 100000}"},
  };
  return list;
}

TEST(Warnings, EachIsGivenWhereItsConditionHoldsAndOnlyThere) {
  for (const Doubt& doubt : doubts()) {
    EXPECT_THAT(text_of(ask(doubt.preset, doubt.cluster, doubt.yaml), doubt.name), HasSubstr(doubt.text))
        << doubt.name;
    EXPECT_EQ(text_of(ask(doubt.preset, doubt.other_cluster, doubt.other_yaml), doubt.name), "")
        << doubt.name;
  }
}

/// Data parallelism runs with every zero stage, recompute and offload.
TEST(Warnings, WhatRunsIsNotCalledOnlyPlanned) {
  for (const char* const yaml : {"mesh: {dp_shard_size: 8}\nshard: {zero: 1}",
                                 "mesh: {dp_shard_size: 8}\nshard: {zero: 2}\nrecompute: {policy: selective}",
                                 "mesh: {dp_shard_size: 4, dp_replicate_size: 2}\nrecompute: {policy: full}",
                                 "mesh: {dp_shard_size: 8}\nshard: {zero: 3, offload: all}"}) {
    const TrainingQuestion question = ask("llama-3-8b", "8xH100-SXM", yaml);
    EXPECT_FALSE(answer_to(question).result.plans.empty()) << yaml;
    EXPECT_EQ(text_of(question, "only planned"), "") << yaml;
  }
}

// The head is as much work as two and a half of four layers: it is not the micro-batches that are missing.
TEST(Warnings, ABubbleOfUnequalStagesIsNamedAsOne) {
  EXPECT_THAT(
      text_of(ask("llama-3-8b", "8xH100-SXM",
                  "batch: {global: 256, micro: 1}\nmesh: {pp_size: 8}\npipeline: {schedule: 1f1b}"),
              "bubble"),
      HasSubstr("256 micro-batches on 8 stages; filling and draining it take 3 %, so stages are unequal"));
}

// 2 % of what may be used are left.
TEST(Warnings, TightMemory) {
  TrainingQuestion question =
      ask("llama-3-8b", "8xH100-SXM",
          "batch: {micro: 1}\nmesh: {dp_shard_size: 8}\nshard: {zero: 3}\nplan: {headroom: 0}");
  EXPECT_EQ(text_of(question, "tight memory"), "");
  const std::int64_t needed = answer_to(question).result.plans.front().worst.reserved;
  question.held.recompute = answer_to(question).result.plans.front().candidate.recompute;
  question.held.reshard = answer_to(question).result.plans.front().candidate.reshard;
  question.problem.cluster.usable_bytes = needed * 100 / 98;
  EXPECT_THAT(text_of(question, "tight memory"), HasSubstr("2.0 % of what may be used is left"));
}

TEST(Warnings, AreATableOfNamesAndConditions) {
  std::vector<std::string> names;
  for (const WarningKind& kind : all_warnings()) {
    EXPECT_FALSE(kind.condition.empty());
    EXPECT_EQ(std::count(names.begin(), names.end(), kind.name), 0) << kind.name;
    names.push_back(kind.name);
    const bool tested = std::any_of(doubts().begin(), doubts().end(),
                                    [&](const Doubt& doubt) { return doubt.name == kind.name; });
    EXPECT_TRUE(tested || kind.name == "tight memory") << kind.name;
  }
  EXPECT_EQ(names.size(), doubts().size() + 1);
}

}  // namespace
}  // namespace ndmesh::plan
