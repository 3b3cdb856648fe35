#pragma once

#include <cstddef>
#include <functional>

namespace ndmesh::plan {

/// Threads that parallel_for uses: the cores.
std::size_t thread_count();

/// Calls work(thread, index) once for each index below `count`, on thread_count() threads, `thread` below
/// that; indices are dealt out in ascending order. Returns when all are done; rethrows the first exception.
void parallel_for(std::size_t count, const std::function<void(std::size_t thread, std::size_t index)>& work);

}  // namespace ndmesh::plan
