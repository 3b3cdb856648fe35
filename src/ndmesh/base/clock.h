#pragma once

#include <chrono>

namespace ndmesh {

/// Seconds on the steady clock, from an arbitrary beginning: the time of all that is measured.
inline double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace ndmesh
