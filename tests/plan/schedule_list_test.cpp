#include <gmock/gmock.h>

#include <memory>

#include "ndmesh/base/error.h"
#include "ndmesh/model/config.h"
#include "ndmesh/plan/search/question.h"
#include "ndmesh/plan/search/search.h"
#include "ndmesh/schedule/schedule_file.h"

namespace ndmesh::plan {
namespace {

using schedule::Kind;
using testing::ElementsAre;
using testing::HasSubstr;

/// The compute actions of a schedule as a list has them, with the kind that a file would give it.
PipelineList list_of(const schedule::Shape& shape) {
  schedule::Schedule schedule = schedule::make_schedule(shape);
  if (shape.chunks == 1) schedule.shape.kind = Kind::gpipe;
  job::PipelineSection pipeline;
  pipeline.list = std::make_shared<const schedule::Schedule>(schedule);
  pipeline.file = "a.schedule";
  return pipeline_list(pipeline);
}

Problem problem_of(std::int64_t batch) {
  Problem problem;
  problem.model = model::preset("llama-1b");
  problem.model.layers = 13;  // chunks of unequal size
  problem.cluster = cluster::parse_cluster("4xA100-SXM", "test");
  problem.profile = profile("ndmesh");
  problem.seq_len = 2048;
  problem.global_batch = batch;
  return problem;
}

TEST(ScheduleList, IsPricedAsTheKindThatHasThoseActions) {
  for (const Kind kind : {Kind::gpipe, Kind::one_f_one_b, Kind::interleaved, Kind::zb_h1, Kind::zb_v}) {
    SCOPED_TRACE(schedule::name_of(kind));
    Problem problem = problem_of(16);
    Candidate candidate;
    candidate.mesh = {.dp_shard = 2, .pp = 2};
    candidate.zero = 2;
    candidate.schedule = kind;
    candidate.chunks = schedule::least_chunks(kind);
    const Constants constants = constants_for(problem.cluster, "ndmesh");
    const Judge judge(problem, constants);
    Problem listed = problem;
    listed.list = list_of(schedule_shape(problem, candidate));
    Candidate same = candidate;
    same.schedule = listed.list.schedule->shape.kind;
    const Judge of_list(listed, constants);
    for (const job::Recompute& recompute :
         {job::Recompute{}, {job::Recompute::Policy::full}, {job::Recompute::Policy::every, 2}}) {
      candidate.recompute = same.recompute = recompute;
      const Plan expected = judge.judge(candidate);
      const Plan plan = of_list.judge(same);
      EXPECT_NEAR(plan.time.seconds, expected.time.seconds, 1e-12 * expected.time.seconds);
      EXPECT_NEAR(plan.time.bubble, expected.time.bubble, 1e-12 * expected.time.seconds);
      EXPECT_EQ(plan.worst.reserved, expected.worst.reserved);
      EXPECT_EQ(plan.schedule_file, "a.schedule");
      EXPECT_LE(of_list.time().least_seconds(same), plan.time.seconds);
      EXPECT_LE(of_list.memory().least_bytes(same), plan.worst.reserved);
    }
  }
}

TEST(ScheduleList, HoldsRanksChunksAndMicroBatches) {
  Problem problem = problem_of(32);
  problem.list = list_of({Kind::interleaved, 2, 3, 4});
  const SearchResult found = search(problem, constants_for(problem), {}, 100);
  ASSERT_FALSE(found.plans.empty());
  for (const Plan& plan : found.plans) {
    EXPECT_EQ(plan.candidate.mesh.pp, 2);
    EXPECT_EQ(plan.candidate.chunks, 3);
    EXPECT_EQ(micro_batches(problem, plan.candidate), 4);
  }
  Held one_rank;
  one_rank.pp = 1;  // means nothing there
  EXPECT_EQ(search(problem, constants_for(problem), one_rank, 1).plans.front().schedule_file, "");
}

std::vector<std::string> refusals(const std::string& keys, const std::string& schedule,
                                  const std::string& preset = "llama-3-8b") {
  job::Job job = job::parse_job("cluster: 8xH100-SXM\n" + keys, "test.yaml", {});
  job.pipeline.list =
      std::make_shared<const schedule::Schedule>(schedule::parse_schedule(schedule, "a.schedule"));
  job.pipeline.file = "a.schedule";
  const TrainingQuestion question =
      training_question(job, model::preset(preset), cluster::parse_cluster("8xH100-SXM", "test"));
  return broken_by(question.problem, question.held);
}

TEST(ScheduleList, WhatContradictsItIsRefused) {
  const std::string two = "F0.0 F0.1 B0.0 B0.1\nF0.0 B0.0 F0.1 B0.1\n";
  EXPECT_THAT(refusals("batch: {global: 8}\n", two), testing::IsEmpty());
  EXPECT_THAT(refusals("mesh: {pp_size: 4}\nbatch: {global: 8}\n", two),
              ElementsAre("pipeline.schedule a.schedule is for 2 ranks; mesh.pp_size is 4; allowed: 2"));
  EXPECT_THAT(refusals("mesh: {pp_size: 1}\nbatch: {global: 8}\n", two), testing::IsEmpty());
  EXPECT_THAT(
      refusals("pipeline: {chunks: 2}\nbatch: {global: 8}\n", two),
      ElementsAre(
          "pipeline.schedule a.schedule is for 1 chunks of each rank; pipeline.chunks is 2; allowed: 1"));
  EXPECT_THAT(
      refusals("batch: {global: 9}\n", two),
      ElementsAre(
          "pipeline.schedule a.schedule has 2 micro-batches; batch.global 9 is not that many on each of "
          "the batch ranks; nearest: 8 or 10"));
  EXPECT_THAT(refusals("batch: {global: 8, micro: 3}\nmesh: {dp_shard_size: 1, dp_replicate_size: 1}\n", two),
              testing::Contains(
                  "pipeline.schedule a.schedule has 2 micro-batches; batch.global 8 is not that many on "
                  "each of the batch ranks with batch.micro 3; nearest: 6"));
  EXPECT_THAT(refusals("plan: {runtime: megatron}\nbatch: {global: 8}\n", two),
              ElementsAre(HasSubstr("pipeline.schedule a.schedule: megatron reads no lists; allowed: 1f1b, "
                                    "interleaved, or plan.runtime ndmesh")));
  EXPECT_THAT(refusals("batch: {global: 8}\n", "F0.0 B0.0\nF0.0\n"),
              testing::Contains(HasSubstr("pipeline.schedule a.schedule: ")));
  EXPECT_THAT(
      refusals("batch: {global: 3}\n", "F0.0 B0.0\nF0.0 B0.0\nF0.0 B0.0\n"),
      ElementsAre(
          "pipeline.schedule a.schedule is for 3 ranks, which do not divide the cluster's 8 devices"));
}

TEST(ScheduleList, ABatchThatIsNotGivenIsOneThatItDivides) {
  EXPECT_THAT(refusals("", "F0.0 F0.1 F0.2 B0.0 B0.1 B0.2\nF0.0 B0.0 F0.1 B0.1 F0.2 B0.2\n"),
              testing::IsEmpty());
}

}  // namespace
}  // namespace ndmesh::plan
