#include "ndmesh/train/thread_count.h"

#include <ATen/Parallel.h>

#include <mutex>
#include <thread>

namespace ndmesh::train {

void set_thread_count(int count) {
  // One at a time: what another call has set for a moment is not what the process had.
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  // Only a thread that has asked for nothing shows the number for new threads, and only another may set it back: here
  // it would count for this thread too.
  int before = 0;
  std::thread([&] { before = at::get_num_threads(); }).join();
  static_cast<void>(
      at::get_num_threads());  // a thread's first use takes the process's number: not after what follows
  at::set_num_threads(count);
  std::thread([&] { at::set_num_threads(before); }).join();
}

}  // namespace ndmesh::train
