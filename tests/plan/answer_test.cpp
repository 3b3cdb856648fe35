#include "ndmesh/plan/search/answer.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "ndmesh/model/config.h"

namespace ndmesh::plan {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TrainingQuestion ask(const std::string& preset, const std::string& cluster, const std::string& yaml) {
  return training_question(job::parse_job("precision: {dtype: bfloat16}\n" + yaml, "test.yaml", {}),
                           model::preset(preset), cluster::parse_cluster(cluster, "test"));
}

const Fix* find_fix(const TrainingAnswer& answer, const std::string& change) {
  const auto found = std::find_if(answer.fixes.begin(), answer.fixes.end(),
                                  [&](const Fix& fix) { return fix.change == change; });
  return found == answer.fixes.end() ? nullptr : &*found;
}

Plan best_of(const TrainingQuestion& question) {
  return *best_plan(question.problem, {});
}

TEST(Answer, FixesAreNamedAndOrderedByPrice) {
  const TrainingAnswer found =
      answer(ask("llama-3-70b", "8xH200-SXM", "batch: {global: 64, seq_len: 8192}"), 1);
  for (const char* change : {"shard.offload=optimizer", "shard.offload=all", "precision.bf16_states=true",
                             "adapter.rank=16", "16 devices"}) {
    EXPECT_NE(find_fix(found, change), nullptr) << change;
  }
  EXPECT_EQ(found.fixes.back().devices, 16);  // the larger cluster comes last
  EXPECT_EQ(found.fixes.back().plan.candidate.mesh.world(), 16);
  for (std::size_t i = 1; i + 1 < found.fixes.size(); ++i) {
    EXPECT_LE(found.fixes[i - 1].plan.time.seconds, found.fixes[i].plan.time.seconds);
  }
  const TrainingAnswer held = answer(
      ask("llama-3-8b", "8xH100-SXM", "batch: {global: 64, seq_len: 8192}\nmesh: {dp_replicate_size: 8}"), 1);
  EXPECT_FALSE(held.fits());
  const Fix* open = find_fix(held, "mesh sizes left open");
  ASSERT_NE(open, nullptr);
  EXPECT_EQ(open->devices, 8);
}

TEST(Answer, EveryUsedAxisHasItsReasonInNumbers) {
  const TrainingAnswer found = answer(
      ask("llama-3-8b", "2x8xH100-SXM", "batch: {global: 8, seq_len: 8192}\nmesh: {tp_size: 2, pp_size: 2}"),
      3);
  for (const Plan& plan : found.result.plans) {
    std::size_t used = 0;
    for (const mesh::Axis axis : mesh::all_axes) used += plan.candidate.mesh.size(axis) > 1 ? 1U : 0U;
    ASSERT_EQ(plan.reasons.size(), used);
    for (const std::string& reason : plan.reasons) EXPECT_THAT(reason, HasSubstr("without it"));
  }
  const auto explanation = explanation_of(found);
  ASSERT_EQ(explanation.size(), 7U);
  EXPECT_THAT(explanation[0], AllOf(HasSubstr("1. Domains"), HasSubstr("nvlink"), HasSubstr("16 devices")));
  EXPECT_THAT(explanation[1],
              AllOf(HasSubstr("2. Tensor"), HasSubstr("all-gather"), HasSubstr("Fails when it")));
  EXPECT_THAT(explanation[3], HasSubstr("4. Pipeline"));
  EXPECT_THAT(explanation[4], HasSubstr("the model is dense"));
  EXPECT_THAT(explanation[5], HasSubstr("candidates break no rule"));
  EXPECT_THAT(explanation[6], HasSubstr("Baseline"));
}

TEST(Answer, BaselinesThatAreNotLegalSayWhy) {
  const TrainingAnswer found =
      answer(ask("llama-3-8b", "2x8xH100-SXM", "batch: {global: 8, seq_len: 8192}"), 1);
  ASSERT_EQ(found.baselines.size(), 4U);
  EXPECT_TRUE(found.baselines[0].plan);
  EXPECT_EQ(found.baselines[0].plan->candidate.mesh.world(), 1);
  EXPECT_FALSE(found.baselines[1].plan);
  EXPECT_THAT(found.baselines[1].broken,
              testing::Contains(HasSubstr("batch.global: 8 is not a multiple of 16")));
}

TEST(Answer, ABatchMayGrow) {
  const TrainingQuestion fixed = ask("llama-3-8b", "2x8xH100-SXM", "batch: {global: 8, seq_len: 2048}");
  const TrainingQuestion range =
      ask("llama-3-8b", "2x8xH100-SXM", "batch: {global: 8, seq_len: 2048}\nplan: {max_batch: 64}");
  const TrainingAnswer small = answer(fixed, 1);
  const TrainingAnswer large = answer(range, 1);
  EXPECT_EQ(small.result.plans.front().global_batch, 8);
  EXPECT_EQ(large.result.plans.front().global_batch, 64);
  EXPECT_GT(tokens_per_second(range.problem, large.result.plans.front()),
            tokens_per_second(fixed.problem, small.result.plans.front()));
  EXPECT_GT(large.result.judged, small.result.judged);
  const auto limits = [](const TrainingAnswer& found) {
    return std::count_if(found.warnings.begin(), found.warnings.end(),
                         [](const Warning& warning) { return warning.name == "batch limits dp"; });
  };
  EXPECT_EQ(limits(large), 0);
}

// With a rate that is wanted the smallest step that reaches it wins, not the fastest rate.
TEST(Answer, AWantedRateIsReachedByTheShortestStep) {
  TrainingQuestion question =
      ask("llama-3-8b", "2x8xH100-SXM", "batch: {global: 8, seq_len: 2048}\nplan: {max_batch: 64}");
  const double least = tokens_per_second(question.problem, best_of(question));
  question.tokens_per_second = 0.9 * least;
  const TrainingAnswer easy = answer(question, 1);
  EXPECT_EQ(easy.result.plans.front().global_batch, 8);
  EXPECT_TRUE(easy.fixes.empty());
}

TEST(Answer, ARateThatIsNotReachedNeedsMoreDevices) {
  TrainingQuestion question = ask("llama-3-8b", "2x8xH100-SXM", "batch: {global: 96, seq_len: 2048}");
  question.tokens_per_second = 1.3 * tokens_per_second(question.problem, best_of(question));
  const TrainingAnswer found = answer(question, 1);
  EXPECT_TRUE(found.fits());
  EXPECT_THAT(found.warnings.front().text, HasSubstr("tokens/s are wanted, and the best plan gives"));
  ASSERT_EQ(found.fixes.size(), 1U);
  const Fix& fix = found.fixes.front();
  EXPECT_EQ(fix.change, "24 devices");  // half as many again, where a third would do
  EXPECT_EQ(fix.devices, 24);
  EXPECT_GE(tokens_per_second(question.problem, fix.plan), question.tokens_per_second);
}

TEST(Warnings, AreATableOfNamesAndConditions) {
  std::vector<std::string> names;
  for (const WarningKind& kind : all_warnings()) {
    EXPECT_FALSE(kind.condition.empty());
    EXPECT_EQ(std::count(names.begin(), names.end(), kind.name), 0) << kind.name;
    names.push_back(kind.name);
  }
  EXPECT_GE(names.size(), 20U);
}

}  // namespace
}  // namespace ndmesh::plan
