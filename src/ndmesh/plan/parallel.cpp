#include "ndmesh/plan/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace ndmesh::plan {

std::size_t thread_count() {
  return std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, 64);
}

void parallel_for(std::size_t count, const std::function<void(std::size_t, std::size_t)>& work) {
  std::atomic<std::size_t> next{0};
  std::exception_ptr failure;
  std::mutex failing;
  const auto run = [&](std::size_t thread) {
    try {
      for (std::size_t index = next++; index < count; index = next++) {
        work(thread, index);
      }
    } catch (...) {
      const std::scoped_lock lock(failing);
      if (!failure) {
        failure = std::current_exception();
      }
      next = count;
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t thread = 1; thread < std::min(count, thread_count()); ++thread) {
    threads.emplace_back(run, thread);
  }
  run(0);
  for (std::thread& thread : threads) {
    thread.join();
  }
  if (failure) {
    std::rethrow_exception(failure);
  }
}

}  // namespace ndmesh::plan
