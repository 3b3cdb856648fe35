// What the threads transport costs, beside plain copies on the same cores.
//   bench_collectives --benchmark_repetitions=5
// Times are the median of the rounds of one run, as rank 0 sees them between two barriers; "bytes_per_second"
// counts the bytes that a rank must receive from others (memcpy: the bytes that a thread copies).

#include <ATen/Functions.h>
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <vector>

#include "ndmesh/comm/world.h"
#include "ndmesh/layout/layout.h"

namespace ndmesh::comm {
namespace {

using Round = std::function<void()>;
/// Makes a rank's buffers and returns what it does in one round.
using MakeRound = std::function<Round(Communicator&)>;

/// Median seconds of a round on `ranks` ranks at once.
double median_round(std::int64_t ranks, int rounds, const MakeRound& make) {
  std::vector<double> seconds;
  run_ranks(mesh::Mesh({.dp_shard = ranks}), {}, [&](Communicator& communicator) {
    const Round round = make(communicator);
    for (int i = -2; i < rounds; ++i) {  // two to warm up
      communicator.everyone().barrier("begin");
      const auto begin = std::chrono::steady_clock::now();
      round();
      communicator.everyone().barrier("end");
      if (communicator.rank() == 0 && i >= 0) {
        seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
      }
    }
  });
  std::nth_element(seconds.begin(), seconds.begin() + rounds / 2, seconds.end());
  return seconds[static_cast<std::size_t>(rounds / 2)];
}

void report(benchmark::State& state, int rounds, std::int64_t bytes, const MakeRound& make) {
  for (auto _ : state) {
    state.SetIterationTime(median_round(state.range(0), rounds, make));
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) * bytes);
}

constexpr std::int64_t large = 64 << 20;
constexpr int large_rounds = 15;

/// Latency of one small all-reduce: many in a row, no barriers between them.
void all_reduce_8_bytes(benchmark::State& state) {
  constexpr int calls = 2000;
  for (auto _ : state) {
    std::vector<double> seconds;
    run_ranks(mesh::Mesh({.dp_shard = state.range(0)}), {}, [&](Communicator& communicator) {
      const at::Tensor tensor = at::zeros({2}, at::kFloat);
      for (int i = 0; i < calls; ++i) {
        const auto begin = std::chrono::steady_clock::now();
        communicator.everyone().all_reduce({tensor}, Reduction::sum, "loss");
        if (communicator.rank() == 0) {
          seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
        }
      }
    });
    std::nth_element(seconds.begin(), seconds.begin() + calls / 2, seconds.end());
    state.SetIterationTime(seconds[calls / 2]);
  }
}

void barrier(benchmark::State& state) {
  for (auto _ : state) {
    state.SetIterationTime(median_round(state.range(0), 2000, [](Communicator&) { return [] {}; }));
  }
}

/// Bytes that a rank receives in an all-gather or reduce-scatter of `large` bytes, copied by each thread.
void memcpy_all_busy(benchmark::State& state) {
  const std::int64_t bytes = layout::all_gather_bytes(large, state.range(0));
  report(state, large_rounds, bytes, [&](Communicator&) -> Round {
    const at::Tensor from = at::ones({bytes}, at::kByte), to = at::ones({bytes}, at::kByte);
    return
        [=] { std::memcpy(to.mutable_data_ptr(), from.const_data_ptr(), static_cast<std::size_t>(bytes)); };
  });
}

/// All-gather in which each rank's own rows already lie in the output.
void all_gather_64_MiB(benchmark::State& state) {
  const std::int64_t ranks = state.range(0);
  report(state, large_rounds, layout::all_gather_bytes(large, ranks), [&](Communicator& c) -> Round {
    const at::Tensor whole = at::ones({large / 4}, at::kFloat);
    const layout::Range mine = layout::split(whole.size(0), ranks, c.rank());
    const at::Tensor part = whole.narrow(0, mine.start, mine.size);
    return [=, &c] { c.everyone().all_gather({whole}, {part}, "parameters"); };
  });
}

/// All-gather from a shard of its own, which each rank copies as well.
void all_gather_64_MiB_from_shards(benchmark::State& state) {
  const std::int64_t ranks = state.range(0);
  report(state, large_rounds, layout::all_gather_bytes(large, ranks), [&](Communicator& c) -> Round {
    const at::Tensor whole = at::ones({large / 4}, at::kFloat);
    const at::Tensor part = at::ones({layout::split(whole.size(0), ranks, c.rank()).size}, at::kFloat);
    return [=, &c] { c.everyone().all_gather({whole}, {part}, "parameters"); };
  });
}

void all_gather_64_MiB_float32_to_bfloat16(benchmark::State& state) {
  const std::int64_t ranks = state.range(0);
  report(state, large_rounds, layout::all_gather_bytes(large, ranks), [&](Communicator& c) -> Round {
    const at::Tensor whole = at::ones({large / 4}, at::kBFloat16);
    const at::Tensor part = at::ones({layout::split(whole.size(0), ranks, c.rank()).size}, at::kFloat);
    return [=, &c] { c.everyone().all_gather({whole}, {part}, "parameters"); };
  });
}

void reduce_scatter_large(benchmark::State& state, at::ScalarType from, at::ScalarType to, bool accumulate) {
  const std::int64_t ranks = state.range(0);
  report(state, large_rounds, layout::reduce_scatter_bytes(large, ranks), [&](Communicator& c) -> Round {
    const at::Tensor whole = at::ones({large / static_cast<std::int64_t>(c10::elementSize(from))}, from);
    const at::Tensor part = at::zeros({layout::split(whole.size(0), ranks, c.rank()).size}, to);
    return [=, &c] { c.everyone().reduce_scatter({part}, {whole}, accumulate, "gradients"); };
  });
}

void reduce_scatter_64_MiB(benchmark::State& state) {
  reduce_scatter_large(state, at::kFloat, at::kFloat, false);
}
void reduce_scatter_64_MiB_adding(benchmark::State& state) {
  reduce_scatter_large(state, at::kFloat, at::kFloat, true);
}
void reduce_scatter_64_MiB_bfloat16_to_float32(benchmark::State& state) {
  reduce_scatter_large(state, at::kBFloat16, at::kFloat, true);
}

void all_reduce_64_MiB(benchmark::State& state) {
  report(state, large_rounds, layout::all_reduce_bytes(large, state.range(0)), [&](Communicator& c) -> Round {
    const at::Tensor tensor = at::zeros({large / 4}, at::kFloat);
    return [=, &c] { c.everyone().all_reduce({tensor}, Reduction::sum, "gradients"); };
  });
}

BENCHMARK(barrier)->Arg(2)->Arg(4)->Arg(16)->UseManualTime()->Iterations(1)->Unit(benchmark::kMicrosecond);
BENCHMARK(all_reduce_8_bytes)
    ->Arg(2)
    ->Arg(4)
    ->Arg(16)
    ->UseManualTime()
    ->Iterations(1)
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(memcpy_all_busy)->Arg(2)->UseManualTime()->Iterations(1)->Unit(benchmark::kMillisecond);
BENCHMARK(all_gather_64_MiB)->Arg(2)->UseManualTime()->Iterations(1)->Unit(benchmark::kMillisecond);
BENCHMARK(all_gather_64_MiB_from_shards)
    ->Arg(2)
    ->UseManualTime()
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);
BENCHMARK(all_gather_64_MiB_float32_to_bfloat16)
    ->Arg(2)
    ->UseManualTime()
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);
BENCHMARK(reduce_scatter_64_MiB)->Arg(2)->UseManualTime()->Iterations(1)->Unit(benchmark::kMillisecond);
BENCHMARK(reduce_scatter_64_MiB_adding)
    ->Arg(2)
    ->UseManualTime()
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);
BENCHMARK(reduce_scatter_64_MiB_bfloat16_to_float32)
    ->Arg(2)
    ->UseManualTime()
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);
BENCHMARK(all_reduce_64_MiB)->Arg(2)->UseManualTime()->Iterations(1)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace ndmesh::comm

BENCHMARK_MAIN();
