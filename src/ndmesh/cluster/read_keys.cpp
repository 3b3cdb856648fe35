#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "ndmesh/base/nearest.h"
#include "ndmesh/base/text.h"
#include "ndmesh/base/yaml_values.h"
#include "ndmesh/cluster/draft.h"
#include "ndmesh/cluster/links.h"
#include "ndmesh/cluster/quantity.h"

namespace ndmesh::cluster {
namespace {

// docs/clusters.md lists all keys with their meaning; a test holds the two together.

constexpr std::size_t longest_name = 64;
constexpr std::size_t most_switches = 8;
constexpr IntegerRange device_counts = {1, max_devices_per_node};
constexpr IntegerRange node_counts = {1, max_devices};

/// One key of a mapping that is read into a T.
template <typename T>
struct Key {
  std::string name;
  std::function<void(T&, const YamlNode&)> set;
};

/// "nics" and "is ..." make "nics is ..."; "pcie" and ".devices is ..." make "pcie.devices is ...".
std::string under(const std::string& key, const std::string& problem) {
  const bool goes_deeper = problem.front() == '.' || problem.front() == '[' || problem.front() == ':';
  return key + (goes_deeper ? "" : " ") + problem;
}

/// Reads all entries of `map`. RequestError with every problem, each beginning with ".KEY" or ": unknown key".
template <typename T>
void read_map(const YamlNode& map, const std::vector<Key<T>>& keys, T& into) {
  if (map.kind != YamlNode::Kind::map) refuse(map, "a mapping");
  std::vector<std::string> names;
  for (const Key<T>& key : keys) names.push_back(key.name);
  Problems problems;
  for (const auto& [name, node] : map.entries) {
    const auto key = std::find(names.begin(), names.end(), name);
    if (key == names.end()) {
      problems.add(
          fmt::format(": unknown key {}{}; keys: {}", shown(name), did_you_mean(name, names), join(names)));
      continue;
    }
    try {
      keys[static_cast<std::size_t>(key - names.begin())].set(into, node);
    } catch (const RequestError& error) {
      for (const std::string& problem : error.problems()) problems.add("." + under(name, problem));
    }
  }
  problems.raise();
}

double quantity_of(const YamlNode& node, Quantity quantity) {
  return parse_quantity(node.kind == YamlNode::Kind::scalar ? node.scalar : node.shown_value(), quantity);
}

/// Printable ASCII.
std::string name_of(const YamlNode& node) {
  const std::string text = text_of(node);
  const auto printable = [](char c) { return c >= ' ' && c <= '~'; };
  if (text.empty() || text.size() > longest_name || !std::all_of(text.begin(), text.end(), printable)) {
    refuse(node, fmt::format("1 to {} printable characters", longest_name));
  }
  return text;
}

// Keys by what they hold. The member may be a value or an optional one.

template <typename T, typename Member>
Key<T> amount(std::string name, Quantity quantity, Member T::*member) {
  return {std::move(name), [=](T& into, const YamlNode& node) {
            into.*member = static_cast<typename Member::value_type>(quantity_of(node, quantity));
          }};
}

template <typename T>
Key<T> figure(std::string name, Quantity quantity, double T::*member) {
  return {std::move(name),
          [=](T& into, const YamlNode& node) { into.*member = quantity_of(node, quantity); }};
}

template <typename T, typename Member>
Key<T> count(std::string name, IntegerRange range, Member T::*member) {
  return {std::move(name), [=](T& into, const YamlNode& node) { into.*member = integer_of(node, range); }};
}

template <typename T>
Key<T> named(std::string name, std::string T::*member) {
  return {std::move(name), [=](T& into, const YamlNode& node) { into.*member = name_of(node); }};
}

template <typename T>
Key<T> section(std::string name, std::vector<Key<T>> keys) {
  return {std::move(name),
          [keys = std::move(keys)](T& into, const YamlNode& node) { read_map(node, keys, into); }};
}

Key<Draft> scale_up_key() {
  return section<Draft>(
      "scale_up", {named("name", &Draft::link_name), count("devices", node_counts, &Draft::link_devices),
                   amount("bandwidth", Quantity::bandwidth, &Draft::link_bandwidth),
                   amount("pair_bandwidth", Quantity::bandwidth, &Draft::link_pair_bandwidth),
                   amount("latency", Quantity::time, &Draft::link_latency)});
}

Key<Draft> pcie_key() {
  return section<Draft>("pcie", {count("devices", device_counts, &Draft::pcie_devices),
                                 amount("bandwidth", Quantity::bandwidth, &Draft::pcie_bandwidth),
                                 amount("latency", Quantity::time, &Draft::pcie_latency)});
}

Key<Draft> numa_key() {
  return section<Draft>("numa", {count("nodes", device_counts, &Draft::numa_nodes),
                                 amount("bandwidth", Quantity::bandwidth, &Draft::numa_bandwidth)});
}

const std::vector<Key<Device>>& device_keys() {
  const auto share = [](Device& device, const YamlNode& node) {
    device.matmul_efficiency = number_of(node, {0, 1, true});
  };
  static const std::vector<Key<Device>> keys = {
      // Read before the others, which replace its figures.
      {"like", [](Device&, const YamlNode& node) { text_of(node); }},
      named("name", &Device::name),
      named("architecture", &Device::architecture),
      figure("bf16_flops", Quantity::flops, &Device::bf16_flops),
      figure("fp32_flops", Quantity::flops, &Device::fp32_flops),
      figure("fp8_flops", Quantity::flops, &Device::fp8_flops),
      figure("fp4_flops", Quantity::flops, &Device::fp4_flops),
      {"memory",
       [](Device& device, const YamlNode& node) {
         device.memory_bytes = static_cast<std::int64_t>(quantity_of(node, Quantity::memory));
       }},
      figure("memory_bandwidth", Quantity::bandwidth, &Device::memory_bandwidth),
      figure("host_bandwidth", Quantity::bandwidth, &Device::host_bandwidth),
      {"matmul_efficiency", share},
      figure("bus_bandwidth", Quantity::bandwidth, &Device::bus_bandwidth)};
  return keys;
}

/// A device of the catalogue, or a mapping of figures, whole or on top of one ("like").
Device device_of(const YamlNode& node) {
  if (node.kind == YamlNode::Kind::scalar) return device(node.scalar);
  Device result;
  for (const auto& [name, value] : node.entries)
    if (name == "like") result = device(text_of(value));
  read_map(node, device_keys(), result);
  Problems problems;
  if (result.name.empty()) problems.add(".name must be given, or .like with a device of the catalogue");
  if (result.memory_bytes == 0)
    problems.add(".memory must be given, or .like with a device of the catalogue");
  problems.raise();
  return result;
}

/// "8x400G".
void set_nics(Draft& draft, const YamlNode& node) {
  if (node.kind == YamlNode::Kind::map) {
    read_map<Draft>(node,
                    {count("count", device_counts, &Draft::nics),
                     amount("rate", Quantity::bandwidth, &Draft::nic_bandwidth),
                     amount("latency", Quantity::time, &Draft::nic_latency)},
                    draft);
    return;
  }
  const std::size_t cross = node.scalar.find('x');
  if (node.kind != YamlNode::Kind::scalar || cross == std::string::npos) {
    refuse(node, "the NICs of one node, as in 8x400G, or a mapping of count, rate and latency");
  }
  YamlNode part = node;
  part.scalar = node.scalar.substr(0, cross);
  draft.nics = integer_of(part, device_counts);
  draft.nic_bandwidth = parse_quantity(std::string_view(node.scalar).substr(cross + 1), Quantity::bandwidth);
}

constexpr NumberRange factors = {1, 1000};

void set_switches(Draft& draft, const YamlNode& node) {
  static const std::vector<Key<Switch>> keys = {named("name", &Switch::name),
                                                count("nodes", node_counts, &Switch::nodes),
                                                {"oversubscription", [](Switch& each, const YamlNode& value) {
                                                   each.oversubscription = number_of(value, factors);
                                                 }}};
  if (node.kind != YamlNode::Kind::list || node.items.empty() || node.items.size() > most_switches) {
    refuse(node, fmt::format("a list of 1 to {} levels, inwards out", most_switches));
  }
  Problems problems;
  for (std::size_t i = 0; i < node.items.size(); ++i) {
    Switch each;
    each.name = fmt::format("switch{}", i + 1);
    try {
      read_map(node.items[i], keys, each);
    } catch (const RequestError& error) {
      for (const std::string& problem : error.problems())
        problems.add(under(fmt::format("[{}]", i), problem));
    }
    const bool is_last = i + 1 == node.items.size();
    if (!is_last && each.nodes == 0) problems.add(fmt::format("[{}].nodes must be given", i));
    draft.switches.push_back(each);
  }
  problems.raise();
}

/// The shape of a node in short form.
void set_node(Draft& draft, const YamlNode& node) {
  const Draft shape = read_short_form(text_of(node));
  if (shape.nodes) refuse(node, "one node, as in 8xH100-SXM");
  draft.device = shape.device;
  draft.devices_per_node = shape.devices_per_node;
}

const std::vector<Key<Draft>>& cluster_keys() {
  static const std::vector<Key<Draft>> keys = {
      named("name", &Draft::name),
      count("nodes", node_counts, &Draft::nodes),
      {"node", set_node},
      {"device", [](Draft& draft, const YamlNode& node) { draft.device = device_of(node); }},
      count("devices_per_node", device_counts, &Draft::devices_per_node),
      amount("usable_memory", Quantity::memory, &Draft::usable_bytes),
      amount("host_memory", Quantity::memory, &Draft::host_memory_bytes),
      scale_up_key(),
      pcie_key(),
      numa_key(),
      {"nics", set_nics},
      {"switches", set_switches},
      {"oversubscription",
       [](Draft& draft, const YamlNode& node) { draft.oversubscription = number_of(node, factors); }},
      amount("storage", Quantity::bandwidth, &Draft::storage_bandwidth),
      amount("input_rate", Quantity::count, &Draft::input_rate)};
  return keys;
}

/// Keys that say the same thing twice.
void check_doubles(const YamlNode& map, Problems& problems) {
  const auto has = [&](std::string_view name) {
    return std::any_of(map.entries.begin(), map.entries.end(),
                       [&](const auto& entry) { return entry.first == name; });
  };
  const auto exclude = [&](const char* a, const char* b) {
    if (has(a) && has(b)) problems.add(fmt::format("{} and {} are both given; {} already says it", a, b, a));
  };
  exclude("node", "device");
  exclude("node", "devices_per_node");
  exclude("switches", "oversubscription");
}

/// A number of at most `most`; nullopt for what is none.
std::optional<std::int64_t> leading_count(std::string_view& text) {
  const std::size_t cross = text.find('x');
  if (cross == std::string_view::npos || cross == 0) return std::nullopt;
  const std::string_view digits = text.substr(0, cross);
  if (digits.find_first_not_of("0123456789") != std::string_view::npos) return std::nullopt;
  YamlNode node;
  node.kind = YamlNode::Kind::scalar;
  node.scalar = digits;
  text.remove_prefix(cross + 1);
  return integer_of(node, node_counts);
}

}  // namespace

Draft read_short_form(std::string_view text) {
  std::string_view rest = text;
  Draft draft;
  draft.devices_per_node = leading_count(rest);
  if (draft.devices_per_node) {
    if (const auto second = leading_count(rest)) {
      draft.nodes = draft.devices_per_node;
      draft.devices_per_node = second;
    }
  }
  if (!draft.devices_per_node) draft.devices_per_node = 1;
  if (*draft.devices_per_node > max_devices_per_node) {
    throw RequestError(
        fmt::format("is {}; allowed: at most {} devices a node", shown(text), max_devices_per_node));
  }
  draft.device = device(rest);
  draft.name = text;
  return draft;
}

Draft read_keys(const YamlNode& map) {
  Draft draft;
  Problems problems;
  try {
    read_map(map, cluster_keys(), draft);
  } catch (const RequestError& error) {
    for (const std::string& problem : error.problems())
      problems.add(problem.substr(problem.find_first_not_of(".: ")));
  }
  check_doubles(map, problems);
  problems.raise();
  return draft;
}

}  // namespace ndmesh::cluster
