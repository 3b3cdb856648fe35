// One simulation of a schedule, and the search of Llama 3.1 405B on 16,384 devices. Counter of the search:
// candidates decided per second (by rule, bound or simulation).
#include <benchmark/benchmark.h>

#include <vector>

#include "ndmesh/model/config.h"
#include "ndmesh/plan/search/answer.h"
#include "ndmesh/schedule/simulate.h"

namespace {

using namespace ndmesh;

void simulate(benchmark::State& state, schedule::Kind kind) {
  const schedule::Shape shape = {
      .kind = kind, .ranks = 16, .chunks = schedule::least_chunks(kind), .micro_batches = 128};
  std::vector<schedule::StageSeconds> stages;
  for (std::int64_t stage = 0; stage < shape.stages(); ++stage) {
    stages.push_back({1.0 + 0.01 * static_cast<double>(stage), 1.1, 0.9, 0.05});
  }
  for (auto _ : state) {
    benchmark::DoNotOptimize(schedule::simulate(shape, stages, false).seconds);
  }
}

BENCHMARK_CAPTURE(simulate, one_f_one_b, schedule::Kind::one_f_one_b)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(simulate, zb_h1, schedule::Kind::zb_h1)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(simulate, zb_v, schedule::Kind::zb_v)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(simulate, interleaved, schedule::Kind::interleaved)->Unit(benchmark::kMicrosecond);

void search(benchmark::State& state) {
  const job::Job job = job::parse_job(
      "precision: {dtype: bfloat16}\nbatch: {global: 2048, seq_len: 8192}\ncluster: 2048x8xH100-SXM",
      "bench.yaml", {});
  const plan::TrainingQuestion question = plan::training_question(
      job, model::preset("llama-3.1-405b"), cluster::parse_cluster("2048x8xH100-SXM", "bench"));
  const plan::Constants constants = plan::constants_for(question.problem);
  std::int64_t judged = 0;
  for (auto _ : state) {
    judged += plan::search(question.problem, constants, question.held, 10).judged;
  }
  state.counters["candidates"] = benchmark::Counter(static_cast<double>(judged), benchmark::Counter::kIsRate);
}

BENCHMARK(search)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
