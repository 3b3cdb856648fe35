// The collectives of bench/collectives.cpp by MPI, for comparison: mpirun -np 2 bench_collectives_mpi
// Rank 0 prints {"OP": SECONDS, ...}: medians of the rounds between two barriers.

#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <vector>

namespace {

constexpr int large = 64 << 20;  // bytes
constexpr int rounds = 15;

double median_round(const std::function<void()>& round) {
  std::vector<double> seconds;
  for (int i = -2; i < rounds; ++i) {  // two to warm up
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    round();
    MPI_Barrier(MPI_COMM_WORLD);
    if (i >= 0) {
      seconds.push_back(MPI_Wtime() - begin);
    }
  }
  std::nth_element(seconds.begin(), seconds.begin() + rounds / 2, seconds.end());
  return seconds[rounds / 2];
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  int ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const int whole_count = large / static_cast<int>(sizeof(float));
  const int part_count = whole_count / ranks;
  std::vector<float> whole(static_cast<std::size_t>(whole_count), 1.0F);
  std::vector<float> part(static_cast<std::size_t>(part_count), 1.0F);
  const double gather = median_round([&] {
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_FLOAT, whole.data(), part_count, MPI_FLOAT, MPI_COMM_WORLD);
  });
  const double scatter = median_round([&] {
    MPI_Reduce_scatter_block(whole.data(), part.data(), part_count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  });
  const double reduce = median_round(
      [&] { MPI_Allreduce(MPI_IN_PLACE, whole.data(), whole_count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); });
  if (rank == 0) {
    std::printf(R"({"all_gather": %.6f, "reduce_scatter": %.6f, "all_reduce": %.6f})"
                "\n",
                gather, scatter, reduce);
  }
  MPI_Finalize();
  return 0;
}
