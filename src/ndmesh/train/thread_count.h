#pragma once

namespace ndmesh::train {

/// Gives the calling thread `count` (at least 1) threads for the inside of libtorch's operators, and no other thread any
/// more or less. at::set_num_threads alone also changes with how many every thread begins that the process starts later.
/// Costs the start of two threads; any number of threads may call it at once.
void set_thread_count(int count);

}  // namespace ndmesh::train
