#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <stdexcept>

#include "ndmesh/base/error.h"
#include "ndmesh/base/nearest.h"
#include "ndmesh/base/text.h"
#include "ndmesh/cluster/device.h"
#include "ndmesh/cluster/links.h"

namespace ndmesh::cluster {

// catalogue/devices.csv and sources.csv, compiled in.
extern const std::string_view devices_csv;
extern const std::string_view sources_csv;

namespace {

constexpr double giga = 1e9;
constexpr double tera = 1e12;

struct Entry {
  std::string device;
  std::vector<Figure> figures;

  std::string_view text(std::string_view figure) const {
    const auto found =
        std::find_if(figures.begin(), figures.end(), [&](const Figure& f) { return f.name == figure; });
    return found == figures.end() ? std::string_view() : std::string_view(found->value);
  }

  /// The figure times `unit`; 0 when the catalogue has none.
  double number(std::string_view figure, double unit) const {
    const std::string_view written = text(figure);
    double value = 0;
    std::from_chars(written.data(), written.data() + written.size(), value);
    return value * unit;
  }
};

/// Lines of a table without its heading, cut at commas.
std::vector<std::vector<std::string>> rows_of(std::string_view csv, std::size_t columns) {
  std::vector<std::vector<std::string>> rows;
  for (const std::string& line : split(csv, '\n')) {
    if (line.empty()) continue;
    rows.push_back(split(line, ','));
    if (rows.back().size() != columns) throw std::logic_error("device catalogue: " + line);
  }
  rows.erase(rows.begin());
  return rows;
}

/// "S1 D1" in words.
std::string sources_in_words(const std::string& ids) {
  static const std::vector<std::vector<std::string>> sources = rows_of(sources_csv, 2);
  std::vector<std::string> words;
  for (const auto& row : sources) {
    const std::vector<std::string> wanted = split(ids, ' ');
    if (std::find(wanted.begin(), wanted.end(), row[0]) != wanted.end()) words.push_back(row[1]);
  }
  return join(words, " | ");
}

std::vector<Entry> read_entries() {
  std::vector<Entry> entries;
  for (const auto& row : rows_of(devices_csv, 4)) {
    if (entries.empty() || entries.back().device != row[0]) entries.push_back({row[0], {}});
    entries.back().figures.push_back({row[1], row[2], sources_in_words(row[3])});
  }
  return entries;
}

const std::vector<Entry>& entries() {
  static const std::vector<Entry> read = read_entries();
  return read;
}

/// Case, '-', '_' and spaces do not tell devices apart.
std::string plain(std::string_view name) {
  std::string result = lower(name);
  std::erase_if(result, [](char c) { return c == '-' || c == '_' || c == ' '; });
  return result;
}

std::vector<std::string> names_and_aliases(const Entry& entry) {
  std::vector<std::string> names = {entry.device};
  for (const std::string& alias : split(entry.text("aliases"), ' '))
    if (!alias.empty()) names.push_back(alias);
  return names;
}

/// Every plain name and alias, and whose it is.
const std::map<std::string, const Entry*, std::less<>>& entries_by_name() {
  static const auto index = [] {
    std::map<std::string, const Entry*, std::less<>> result;
    for (const Entry& entry : entries())
      for (const std::string& name : names_and_aliases(entry)) result.emplace(plain(name), &entry);
    return result;
  }();
  return index;
}

const Entry& entry_of(std::string_view name) {
  const auto& index = entries_by_name();
  if (const auto found = index.find(plain(name)); found != index.end()) return *found->second;
  std::vector<std::string> known;
  for (const Entry& entry : entries())
    for (const std::string& each : names_and_aliases(entry)) known.push_back(each);
  throw RequestError(fmt::format("{} is no device of the catalogue{}; devices: {}", shown(name),
                                 did_you_mean(name, known), join(device_names())));
}

Level scale_up_of(const Entry& entry) {
  Level link;
  link.name = entry.text("link");
  if (link.name.empty()) return link;
  link.devices = static_cast<std::int64_t>(entry.number("link_devices", 1));
  link.bandwidth = entry.number("link_gbps", giga);
  link.pair_bandwidth = entry.number("link_pair_gbps", giga);
  link.latency = link.name == "roce" ? network_latency : link_latency;
  return link;
}

}  // namespace

std::vector<std::string> device_names() {
  std::vector<std::string> names;
  for (const Entry& entry : entries()) names.push_back(entry.device);
  return names;
}

Device device(std::string_view name) {
  const Entry& entry = entry_of(name);
  Device device;
  device.name = entry.device;
  device.like = entry.device;
  device.architecture = entry.text("architecture");
  device.bf16_flops = entry.number("bf16_tflops", tera);
  device.fp32_flops = entry.number("fp32_tflops", tera);
  device.fp8_flops = entry.number("fp8_tflops", tera);
  device.fp4_flops = entry.number("fp4_tflops", tera);
  device.memory_bytes = static_cast<std::int64_t>(entry.number("memory_mib", 1 << 20));
  device.memory_bandwidth = entry.number("memory_gbps", giga);
  device.pcie_bandwidth = entry.number("pcie_gbps", giga);
  device.host_bandwidth =
      entry.text("host_gbps").empty() ? device.pcie_bandwidth : entry.number("host_gbps", giga);
  device.matmul_efficiency = entry.number("matmul_efficiency", 1);
  device.scale_up = scale_up_of(entry);
  const std::string_view reach = entry.text("link_reach");
  device.link_reach = reach == "bridge" ? LinkReach::bridge
                      : reach == "rack" ? LinkReach::rack
                                        : LinkReach::node;
  device.nic_bandwidth = entry.number("nic_gbps", giga);
  device.bus_bandwidth = entry.number("bus_gbps", giga);
  return device;
}

std::vector<Figure> device_figures(std::string_view name) {
  return entry_of(name).figures;
}

}  // namespace ndmesh::cluster
