#include "ndmesh/base/units.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <string_view>

namespace ndmesh {
namespace {

using Names = std::array<std::string_view, 7>;
constexpr Names binary_names = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
constexpr Names decimal_names = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
constexpr Names scale_names = {"", "k", "M", "G", "T", "P", "E"};

std::string in_units(double value, double base, const Names& names) {
  std::size_t power = 0;
  while (std::abs(value) >= base && power + 1 < names.size()) {
    value /= base;
    ++power;
  }
  const std::string_view space = names[power].empty() ? "" : " ";
  return power == 0 ? fmt::format("{:.0f}{}{}", value, space, names[power])
                    : fmt::format("{:.2f}{}{}", value, space, names[power]);
}

}  // namespace

std::string binary_bytes(std::int64_t bytes) {
  return in_units(static_cast<double>(bytes), 1024, binary_names);
}

std::string decimal_bytes(std::int64_t bytes) {
  return in_units(static_cast<double>(bytes), 1000, decimal_names);
}

std::string grouped(std::int64_t count) {
  std::string text = fmt::format("{}", count);
  const std::size_t first = count < 0 ? 1 : 0;
  for (std::size_t at = text.size(); at > first + 3; at -= 3) {
    text.insert(at - 3, 1, ',');
  }
  return text;
}

std::string scaled(double value) {
  return in_units(value, 1000, scale_names);
}

std::string duration(double seconds) {
  if (seconds < 1e-3) {
    return fmt::format("{:.0f} us", seconds * 1e6);
  }
  if (seconds < 1) {
    return fmt::format("{:.1f} ms", seconds * 1e3);
  }
  if (seconds < 60) {
    return fmt::format("{:.2f} s", seconds);
  }
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  if (whole < 3600) {
    return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  }
  return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
}

}  // namespace ndmesh
