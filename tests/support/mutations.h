#pragma once

#include <cstdint>
#include <string>

#include "ndmesh/base/hash.h"

namespace ndmesh::testing_support {

/// `text` with a few bytes replaced, cut out or repeated: hostile input that is nearly right. The same for
/// the same seed.
inline std::string mutated(std::string text, std::uint64_t seed) {
  std::uint64_t draw = 0;
  const auto below = [&](std::uint64_t n) { return random_at(seed, draw++) % n; };
  const std::uint64_t changes = 1 + below(4);
  for (std::uint64_t i = 0; i < changes && !text.empty(); ++i) {
    const std::size_t at = below(text.size());
    const std::size_t length = 1 + below(8);
    switch (below(4)) {
      case 0:
        text[at] = static_cast<char>(below(256));
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(at, text.substr(below(text.size()), length));
        break;
      default:
        text.insert(at, 1, "{}[]:,\"'-#&*!|>%0123456789\n"[below(27)]);
        break;
    }
  }
  return text;
}

}  // namespace ndmesh::testing_support
