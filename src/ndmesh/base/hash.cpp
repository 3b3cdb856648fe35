#include "ndmesh/base/hash.h"

#include <xxhash.h>

#include <array>

namespace ndmesh {

std::uint64_t seed_for(std::uint64_t seed, std::string_view name) {
  return XXH64(name.data(), name.size(), seed);
}

std::uint64_t random_at(std::uint64_t seed, std::uint64_t counter) {
  std::array<unsigned char, 8> bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<unsigned char>(counter >> (8 * i));
  }
  return XXH64(bytes.data(), bytes.size(), seed);
}

}  // namespace ndmesh
