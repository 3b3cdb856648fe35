#pragma once

#include <cstdint>
#include <string_view>

namespace ndmesh {

/// A seed for everything that is random about `name` (a parameter, an epoch's data order): 64 bits by XXH64,
/// the same on every machine and mesh.
std::uint64_t seed_for(std::uint64_t seed, std::string_view name);

/// Value number `counter` of the stream `seed`: random access, no state. XXH64 of the counter's eight
/// little-endian bytes.
std::uint64_t random_at(std::uint64_t seed, std::uint64_t counter);

}  // namespace ndmesh
