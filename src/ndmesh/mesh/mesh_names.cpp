// Names of axes, and the notations in which users write meshes and orders.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "ndmesh/base/error.h"
#include "ndmesh/base/nearest.h"
#include "ndmesh/base/text.h"
#include "ndmesh/mesh/mesh.h"

namespace ndmesh::mesh {
namespace {

struct Size {
  std::string_view name;
  std::int64_t MeshSizes::*member;
};

/// In the order in which a mesh is written: the slowest axis first, the regrouping ones last.
constexpr std::array<Size, 7> notation = {{{"pp", &MeshSizes::pp},
                                           {"dp_replicate", &MeshSizes::dp_replicate},
                                           {"dp_shard", &MeshSizes::dp_shard},
                                           {"cp", &MeshSizes::cp},
                                           {"tp", &MeshSizes::tp},
                                           {"ep", &MeshSizes::ep},
                                           {"etp", &MeshSizes::etp}}};

/// Ends a message about a name that is none of `names`.
template <class Names>
std::string allowed_axes(std::string_view given, const Names& names) {
  const std::vector<std::string> list(names.begin(), names.end());
  return fmt::format("the axes are {}{}", join(list), did_you_mean(given, list));
}

std::optional<std::int64_t> positive_number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1) return std::nullopt;
  return value;
}

/// One "name=size" of the notation.
void parse_item(std::string_view item, MeshSizes& sizes, std::vector<std::string_view>& seen,
                Problems& problems) {
  const std::size_t equals = item.find('=');
  const std::string_view name = item.substr(0, equals);
  const auto* entry =
      std::find_if(notation.begin(), notation.end(), [&](const Size& s) { return s.name == name; });
  if (entry == notation.end()) {
    std::vector<std::string_view> names;
    for (const Size& size : notation) names.push_back(size.name);
    problems.add(fmt::format("mesh: unknown axis {}; {}", shown(name), allowed_axes(name, names)));
    return;
  }
  if (std::find(seen.begin(), seen.end(), name) != seen.end()) {
    problems.add(fmt::format("mesh axis {} is given twice", name));
    return;
  }
  seen.push_back(entry->name);
  const std::string_view text = equals == std::string_view::npos ? "" : item.substr(equals + 1);
  const std::optional<std::int64_t> size = positive_number(text);
  if (!size) {
    problems.add(fmt::format("mesh axis {}: {} is not a size; write {}=N with a whole number N of at least 1",
                             name, shown(text), name));
    return;
  }
  sizes.*entry->member = *size;
}

}  // namespace

std::string_view name_of(Axis axis) {
  return axis_names[static_cast<std::size_t>(axis)];
}

std::string_view name_of(ExpertAxis axis) {
  constexpr std::array<std::string_view, 3> names = {"etp", "ep", "edp"};
  return names[static_cast<std::size_t>(axis)];
}

std::optional<Axis> axis_from_name(std::string_view name) {
  for (const Axis axis : all_axes) {
    if (name_of(axis) == name) return axis;
  }
  return std::nullopt;
}

std::string AxisSet::name() const {
  std::string text;
  for (const Axis axis : all_axes) {
    if (contains(axis)) text += fmt::format("{}{}", text.empty() ? "" : "+", name_of(axis));
  }
  return text.empty() ? "none" : text;
}

std::string MeshSizes::name() const {
  std::string text;
  for (const Size& size : notation) {
    if (this->*size.member != 1)
      text += fmt::format("{}{}={}", text.empty() ? "" : ",", size.name, this->*size.member);
  }
  return text.empty() ? "1" : text;
}

MeshSizes parse_mesh(std::string_view text) {
  MeshSizes sizes;
  if (text == "1") return sizes;
  Problems problems;
  std::vector<std::string_view> seen;
  while (true) {
    const std::size_t comma = text.find(',');
    parse_item(text.substr(0, comma), sizes, seen, problems);
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
  }
  problems.raise();
  return sizes;
}

AxisOrder parse_order(const std::vector<std::string>& names) {
  Problems problems;
  AxisOrder order{};
  AxisSet seen;
  std::size_t position = 0;
  for (const std::string& name : names) {
    const std::optional<Axis> axis = axis_from_name(name);
    if (!axis) {
      problems.add(
          fmt::format("mesh.order: unknown axis {}; {}", shown(name), allowed_axes(name, axis_names)));
    } else if (seen.contains(*axis)) {
      problems.add(fmt::format("mesh.order: {} is named twice", name));
    } else {
      seen = seen.with(*axis);
      order[position++] = *axis;
    }
  }
  for (const Axis axis : all_axes) {
    if (!seen.contains(axis)) {
      problems.add(fmt::format("mesh.order: {} is missing; every axis must be named once", name_of(axis)));
    }
  }
  problems.raise();
  return order;
}

}  // namespace ndmesh::mesh
