#include "ndmesh/plan/serving/serving_cache.h"

#include <algorithm>

#include "ndmesh/plan/integers.h"

namespace ndmesh::plan {
namespace {

/// Tokens for which a layer takes room.
struct Slots {
  std::int64_t full = 0;
  std::int64_t windowed = 0;
};

/// A window of w tokens that begins anywhere touches at most this many blocks.
std::int64_t window_blocks(std::int64_t window, std::int64_t block) {
  return window > 0 ? ceil_div(window - 1, block) + 1 : 0;
}

Slots slots(const CacheShape& shape, const CacheRules& rules, std::int64_t tokens, std::int64_t shared) {
  if (rules.policy == job::KvPolicy::reserve) {
    return {tokens, std::min(tokens, shape.window)};
  }
  const std::int64_t own = ceil_div(tokens, rules.block) - shared / rules.block;
  return {own * rules.block, std::min(own, window_blocks(shape.window, rules.block)) * rules.block};
}

std::int64_t bytes(const CacheShape& shape, const Slots& slots) {
  return capped_sum(capped_product(shape.full, slots.full), capped_product(shape.windowed, slots.windowed));
}

}  // namespace

std::int64_t sequence_bytes(const CacheShape& shape, const CacheRules& rules, std::int64_t tokens) {
  return own_bytes(shape, rules, tokens, 0);
}

std::int64_t own_bytes(const CacheShape& shape, const CacheRules& rules, std::int64_t tokens,
                       std::int64_t shared) {
  return bytes(shape, slots(shape, rules, tokens, shared));
}

std::int64_t longest_sequence(const CacheShape& shape, const CacheRules& rules, std::int64_t room,
                              std::int64_t most) {
  if (sequence_bytes(shape, rules, most) <= room) {
    return most;
  }
  const std::int64_t unit = rules.policy == job::KvPolicy::reserve ? 1 : rules.block;
  std::int64_t fitting = 0;  // units
  std::int64_t lacking = ceil_div(most, unit);
  while (lacking - fitting > 1) {
    const std::int64_t middle = fitting + (lacking - fitting) / 2;
    (sequence_bytes(shape, rules, middle * unit) <= room ? fitting : lacking) = middle;
  }
  return fitting * unit;
}

}  // namespace ndmesh::plan
