#pragma once

#include <cstddef>

/// Memory that ranks share, for the thread sanitizer. libtorch is not instrumented: what it writes and reads is unknown to the
/// sanitizer, unless ndmesh says it in its place. In other builds these do nothing.
namespace ndmesh {

/// This thread has written, or may write from now on.
void note_written(const void* memory, std::size_t bytes);
/// This thread reads from now on.
void note_read(const void* memory, std::size_t bytes);

}  // namespace ndmesh
