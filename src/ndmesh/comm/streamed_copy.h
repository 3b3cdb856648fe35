#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace ndmesh::comm {

/// From so many bytes on a result does not stay in the caches anyway.
inline constexpr std::size_t streamed_bytes = std::size_t{1} << 20;

/// memcpy past the caches: lines are written without being fetched first, which is a quarter of the traffic of a sum of two.
/// `from` is 16-byte aligned; where `to` is not, or bytes are no whole lines, it copies as ever. Call end_streaming before
/// another thread may read `to`.
inline void streamed_copy(void* to, const void* from, std::size_t bytes) {
#if defined(__SSE2__)
  if (reinterpret_cast<std::uintptr_t>(to) % 16 == 0 && bytes % 64 == 0) {
    auto* target = static_cast<__m128i*>(to);
    const auto* source = static_cast<const __m128i*>(from);
    for (std::size_t i = 0; i < bytes / 16; i += 4) {  // a line at a time
      _mm_stream_si128(target + i, _mm_load_si128(source + i));
      _mm_stream_si128(target + i + 1, _mm_load_si128(source + i + 1));
      _mm_stream_si128(target + i + 2, _mm_load_si128(source + i + 2));
      _mm_stream_si128(target + i + 3, _mm_load_si128(source + i + 3));
    }
    return;
  }
#endif
  std::memcpy(to, from, bytes);
}

inline void end_streaming() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

}  // namespace ndmesh::comm
