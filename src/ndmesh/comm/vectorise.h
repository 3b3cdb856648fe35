#pragma once

namespace ndmesh::comm {

/// Runs `body` compiled for the widest vectors that this processor has. Write the body as a lambda marked
/// [[gnu::always_inline]], whose loops then are compiled once for each level.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)

template <class Body>
[[gnu::target("arch=x86-64-v4,prefer-vector-width=512"), gnu::noinline]] void run_v4(const Body& body) {
  body();
}

template <class Body>
[[gnu::target("arch=x86-64-v3"), gnu::noinline]] void run_v3(const Body& body) {
  body();
}

template <class Body>
void vectorise(const Body& body) {
  static const int level = __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw") ? 4
                           : __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")        ? 3
                                                                                                    : 1;
  level == 4 ? run_v4(body) : level == 3 ? run_v3(body) : body();
}

#else

template <class Body>
void vectorise(const Body& body) {
  body();
}

#endif

}  // namespace ndmesh::comm
