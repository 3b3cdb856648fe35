#pragma once

#include <cstdint>
#include <string>

namespace ndmesh {

/// Bytes in powers of two: "512 B", "1.50 KiB", "14.96 GiB". For memory.
std::string binary_bytes(std::int64_t bytes);

/// Bytes in powers of ten: "16.06 GB". For files, links and cards as they are sold.
std::string decimal_bytes(std::int64_t bytes);

/// "8,030,261,248".
std::string grouped(std::int64_t count);

/// A large number by its power of thousand: "2.45 T", "39.64 G", "812". For FLOPs and rates.
std::string scaled(double value);

/// "850 us", "12.3 ms", "4.20 s", "3 min 05 s", "2 h 03 min".
std::string duration(double seconds);

}  // namespace ndmesh
