#pragma once

#include <cstdint>

#include "ndmesh/job/serving_keys.h"

namespace ndmesh::plan {

/// Bytes of cache that one token leaves on one rank, by kind of layer.
struct CacheShape {
  std::int64_t full = 0;      ///< in the layers that attend to everything
  std::int64_t windowed = 0;  ///< in those that attend to the last `window` tokens
  std::int64_t window = 0;    ///< tokens

  std::int64_t per_token() const { return full + windowed; }
};

/// How room is given out.
struct CacheRules {
  job::KvPolicy policy = job::KvPolicy::paged;
  std::int64_t block = 16;  ///< tokens; of no meaning under `reserve`
};

/// Bytes that a sequence of `tokens` takes. Under `reserve` exactly its tokens, in windowed layers at most
/// the window; otherwise whole blocks, and a window may begin and end inside one. Capped at most_bytes
/// (plan/integers.h).
std::int64_t sequence_bytes(const CacheShape& shape, const CacheRules& rules, std::int64_t tokens);

/// The same for a sequence whose first `shared` tokens (whole blocks) lie in blocks of another.
std::int64_t own_bytes(const CacheShape& shape, const CacheRules& rules, std::int64_t tokens,
                       std::int64_t shared);

/// The longest sequence, at most `most` tokens and rounded down to whole blocks (under `reserve` to tokens),
/// that takes no more than `room` bytes; 0 when none does. A `most` inside a block stands as it is.
std::int64_t longest_sequence(const CacheShape& shape, const CacheRules& rules, std::int64_t room,
                              std::int64_t most);

}  // namespace ndmesh::plan
