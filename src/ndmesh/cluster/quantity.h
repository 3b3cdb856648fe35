#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ndmesh::cluster {

/// What a value of a cluster file measures, which decides its units.
enum class Quantity {
  memory,     ///< bytes: B, kB, MB, GB, TB (powers of ten), KiB, MiB, GiB, TiB (of two)
  bandwidth,  ///< bytes/s: MB/s, GB/s, TB/s; bits as links are sold: 400G, 400Gb/s, 1.6T, 1.6Tb/s
  time,       ///< seconds: ns, us, ms, s
  flops,      ///< FLOP/s: G, T, P, also with "FLOPS" or "FLOP/s" behind
  count,      ///< no unit: k, M, G
};

/// The number with its unit ("79.6GiB", "450 GB/s", "2us"); a space between them is allowed. Positive, not absurdly
/// large (memory at most 1e18 bytes). RequestError "is VALUE; allowed: ..." otherwise.
double parse_quantity(std::string_view text, Quantity quantity);

/// A text that parse_quantity reads back to exactly the same value, in the unit that people use where the value allows.
std::string quantity_text(double value, Quantity quantity);

}  // namespace ndmesh::cluster
