#include "ndmesh/cluster/quantity.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <vector>

#include "ndmesh/base/error.h"
#include "ndmesh/base/text.h"

namespace ndmesh::cluster {
namespace {

struct Unit {
  std::string_view name;
  double factor;
  bool is_written = false;  ///< chosen by quantity_text; those of one quantity descend
};

struct UnitTable {
  std::vector<Unit> units;
  double least;  // nothing that is divided by it overflows
  double most;
  std::string_view allowed;
};

constexpr double kibi = 1024;
constexpr double bit = 0.125;

const UnitTable& table_of(Quantity quantity) {
  static const std::array<UnitTable, 5> tables = {
      UnitTable{{{"TiB", kibi * kibi * kibi * kibi, true},
                 {"GiB", kibi * kibi * kibi, true},
                 {"MiB", kibi * kibi, true},
                 {"KiB", kibi, true},
                 {"TB", 1e12},
                 {"GB", 1e9},
                 {"MB", 1e6},
                 {"kB", 1e3},
                 {"B", 1, true}},
                1,
                1e18,
                "bytes with a unit, as in 79.6GiB or 80GB"},
      UnitTable{{{"TB/s", 1e12, true},
                 {"GB/s", 1e9, true},
                 {"MB/s", 1e6, true},
                 {"B/s", 1, true},
                 {"T", bit * 1e12},
                 {"G", bit * 1e9},
                 {"Tb/s", bit * 1e12},
                 {"Gb/s", bit * 1e9},
                 {"Tbps", bit * 1e12},
                 {"Gbps", bit * 1e9},
                 {"Mb/s", bit * 1e6}},
                1,
                1e18,
                "a rate with a unit, as in 450GB/s (bytes) or 400G (bits, as links are sold)"},
      UnitTable{{{"s", 1, true}, {"ms", 1e-3, true}, {"us", 1e-6, true}, {"ns", 1e-9, true}},
                1e-12,
                1e6,
                "a time with a unit, as in 2us"},
      UnitTable{{{"P", 1e15, true},
                 {"T", 1e12, true},
                 {"G", 1e9, true},
                 {"PFLOPS", 1e15},
                 {"TFLOPS", 1e12},
                 {"GFLOPS", 1e9},
                 {"PFLOP/s", 1e15},
                 {"TFLOP/s", 1e12},
                 {"GFLOP/s", 1e9},
                 {"", 1, true}},
                1,
                1e21,
                "FLOP/s, as in 989T"},
      UnitTable{{{"G", 1e9}, {"M", 1e6}, {"k", 1e3}, {"", 1, true}}, 1, 1e18, "a number, as in 5M or 5e6"}};
  return tables[static_cast<std::size_t>(quantity)];
}

[[noreturn]] void refuse_text(std::string_view text, Quantity quantity) {
  throw RequestError(fmt::format("is {}; allowed: {}", shown(text), table_of(quantity).allowed));
}

}  // namespace

double parse_quantity(std::string_view text, Quantity quantity) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  for (const Unit& known : table_of(quantity).units) {
    if (error != std::errc() || unit != known.name) continue;
    const double result = value * known.factor;
    if (result >= table_of(quantity).least && result <= table_of(quantity).most) return result;
  }
  refuse_text(text, quantity);
}

std::string quantity_text(double value, Quantity quantity) {
  std::string_view plain;
  for (const Unit& unit : table_of(quantity).units) {
    if (unit.factor == 1) plain = unit.name;
    const double number = value / unit.factor;
    if (unit.is_written && number >= 1 && number * unit.factor == value)
      return fmt::format("{}{}", number, unit.name);
  }
  return fmt::format("{}{}", value, plain);
}

}  // namespace ndmesh::cluster
