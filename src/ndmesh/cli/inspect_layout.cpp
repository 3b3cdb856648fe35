#include "ndmesh/cli/inspect_layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "ndmesh/base/error.h"
#include "ndmesh/base/units.h"

namespace ndmesh::cli {
namespace {

using Json = nlohmann::ordered_json;
using layout::Box;
using layout::ParameterLayout;
using mesh::Axis;
using mesh::AxisSet;
using mesh::Mesh;
using ParameterLayouts = std::vector<ParameterLayout>;

constexpr DType formats[] = {DType::bfloat16, DType::float32, DType::float64};

/// The first rank with the most elements. Larger parts come first, so it sits at 0 on every axis but pp.
std::int64_t fullest_rank(const ParameterLayouts& parameters, const Mesh& mesh) {
  const std::vector<std::int64_t> stages = mesh.group(0, {Axis::pp});
  return *std::max_element(stages.begin(), stages.end(), [&](std::int64_t a, std::int64_t b) {
    return padded_local_elements(parameters, a) < padded_local_elements(parameters, b);
  });
}

std::vector<std::int64_t> shown_ranks(const ParameterLayouts& parameters, const Mesh& mesh,
                                      std::optional<std::int64_t> rank) {
  if (!rank) {
    const std::int64_t fullest = fullest_rank(parameters, mesh);
    return fullest == 0 ? std::vector<std::int64_t>{0} : std::vector<std::int64_t>{0, fullest};
  }
  if (*rank < 0 || *rank >= mesh.world()) {
    throw RequestError(fmt::format("--rank: {} is not a rank of mesh {}; allowed are 0 to {}", *rank,
                                   mesh.sizes().name(), mesh.world() - 1));
  }
  return {*rank};
}

bool holds(const ParameterLayout& parameter, std::int64_t rank) {
  return parameter.held_on(parameter.tensor.mesh().coordinate(rank, Axis::pp));
}

// JSON

Json axes_json(AxisSet axes) {
  Json json = Json::array();
  for (const Axis axis : mesh::all_axes) {
    if (axes.contains(axis)) json.push_back(name_of(axis));
  }
  return json;
}

Json bytes_json(std::int64_t elements) {
  Json json = Json::object();
  for (const DType dtype : formats) json[std::string(name_of(dtype))] = elements * bytes_of(dtype);
  return json;
}

Json rank_json(const ParameterLayouts& parameters, const Mesh& mesh, std::int64_t rank) {
  Json json = {{"rank", rank}};
  for (const Axis axis : mesh::all_axes) json[std::string(name_of(axis))] = mesh.coordinate(rank, axis);
  json["elements"] = local_elements(parameters, rank);
  json["padded_elements"] = padded_local_elements(parameters, rank);
  json["bytes"] = bytes_json(padded_local_elements(parameters, rank));
  return json;
}

/// A number, or one for each box where a fused parameter is shared in parts.
Json copies_json(const ParameterLayout& parameter, std::int64_t rank) {
  const std::vector<std::int64_t> copies = parameter.tensor.box_copies(rank, mesh::loss_axes.with(Axis::tp));
  const bool same = std::count(copies.begin(), copies.end(), copies.front()) == std::ssize(copies);
  return same ? Json(copies.front()) : Json(copies);
}

Json local_json(const ParameterLayout& parameter, std::int64_t rank) {
  Json boxes = Json::array();
  for (const Box& box : parameter.tensor.boxes(rank)) {
    Json ranges = Json::array();
    for (const layout::Range& range : box) ranges.push_back({range.start, range.size});
    boxes.push_back(ranges);
  }
  return {{"rank", rank},
          {"shape", parameter.tensor.local_shape(rank)},
          {"padded_shape", parameter.tensor.padded_local_shape(rank)},
          {"boxes", boxes},
          {"copies", copies_json(parameter, rank)},
          {"bytes", bytes_json(parameter.tensor.padded_local_elements(rank))}};
}

Json parameter_json(const ParameterLayout& parameter, const std::vector<std::int64_t>& ranks) {
  Json placements = Json::array();
  for (const layout::Placement& placement : parameter.tensor.placements()) {
    if (parameter.tensor.mesh().size(placement.axes) > 1) placements.push_back(placement.describe());
  }
  Json local = Json::array();
  for (const std::int64_t rank : ranks) {
    if (holds(parameter, rank)) local.push_back(local_json(parameter, rank));
  }
  return {{"name", parameter.spec.name},
          {"role", std::string(name_of(parameter.spec.role))},
          {"shape", parameter.spec.shape},
          {"first_stage", parameter.first_stage},
          {"last_stage", parameter.last_stage},
          {"placements", placements},
          {"gradient_reduction_axes", axes_json(parameter.gradient_reduction_axes)},
          {"gradient_scatter_axes", axes_json(parameter.gradient_scatter_axes)},
          {"norm_axes", axes_json(parameter.norm_axes)},
          {"local", local}};
}

Json layout_json(const ParameterLayouts& parameters, const Mesh& mesh,
                 const std::vector<std::int64_t>& ranks) {
  Json json = {{"mesh", mesh.sizes().name()}, {"world", mesh.world()}};
  json["ranks"] = Json::array();
  for (const std::int64_t rank : ranks) json["ranks"].push_back(rank_json(parameters, mesh, rank));
  json["parameters"] = Json::array();
  for (const ParameterLayout& parameter : parameters)
    json["parameters"].push_back(parameter_json(parameter, ranks));
  return json;
}

// Text

constexpr std::size_t columns = 8;

/// One line of the table, for one parameter or for the same one of several layers; that of an expert stands
/// for all of its layer.
struct Row {
  std::string before;  ///< name up to the layer's number
  std::string after;   ///< and behind it
  std::int64_t first_layer = -1;
  std::int64_t last_layer = -1;
  std::array<std::string, columns - 1> cells;

  std::string name() const {
    if (first_layer < 0) return before;
    if (first_layer == last_layer) return fmt::format("{}{}{}", before, first_layer, after);
    return fmt::format("{}{}-{}{}", before, first_layer, last_layer, after);
  }
};

std::string shape_text(const layout::Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

/// "[0:3, 0:48] [8:11, 0:48]": from the first index to the one behind the last.
std::string boxes_text(const std::vector<Box>& boxes) {
  std::vector<std::string> texts;
  for (const Box& box : boxes) {
    std::vector<std::string> ranges;
    for (const layout::Range& range : box)
      ranges.push_back(fmt::format("{}:{}", range.start, range.start + range.size));
    texts.push_back(fmt::format("[{}]", fmt::join(ranges, ", ")));
  }
  return fmt::format("{}", fmt::join(texts, " "));
}

Row row_of(const ParameterLayout& parameter, std::int64_t rank) {
  const std::int64_t bytes = parameter.tensor.padded_local_elements(rank) * bytes_of(DType::float32);
  Row row;
  row.before = parameter.spec.name;
  if (parameter.spec.layer >= 0) {
    const std::string number = fmt::format(".{}.", parameter.spec.layer);
    const std::size_t dot = row.before.find(number);
    row.after = row.before.substr(dot + number.size() - 1);
    row.before.resize(dot + 1);
    row.first_layer = row.last_layer = parameter.spec.layer;
  }
  if (parameter.spec.expert >= 0 && !parameter.spec.stacked) {
    const std::string number = fmt::format(".{}.", parameter.spec.expert);
    row.after.replace(row.after.find(number), number.size(), ".*.");
  }
  row.cells = {shape_text(parameter.spec.shape),
               shape_text(parameter.tensor.local_shape(rank)),
               boxes_text(parameter.tensor.boxes(rank)),
               parameter.gradient_reduction_axes.name(),
               parameter.gradient_scatter_axes.name(),
               parameter.norm_axes.name(),
               grouped(bytes)};
  return row;
}

/// Adds `row`, folded into an earlier one that differs only in being the layer before.
void add_folded(std::vector<Row>& rows, const Row& row) {
  const auto same = std::find_if(rows.begin(), rows.end(), [&](const Row& other) {
    return row.first_layer >= 0 && other.last_layer + 1 == row.first_layer && other.before == row.before &&
           other.after == row.after && other.cells == row.cells;
  });
  if (same == rows.end()) {
    rows.push_back(row);
  } else {
    same->last_layer = row.last_layer;
  }
}

void print_table(const std::vector<Row>& rows) {
  std::vector<std::array<std::string, columns>> lines = {
      {"parameter", "global", "local", "boxes", "summed over", "scattered", "norm over", "bytes (float32)"}};
  for (const Row& row : rows) {
    std::array<std::string, columns>& line = lines.emplace_back();
    line[0] = row.name();
    std::copy(row.cells.begin(), row.cells.end(), line.begin() + 1);
  }
  std::array<std::size_t, columns> widths{};
  for (const auto& line : lines) {
    for (std::size_t i = 0; i < columns; ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  for (const auto& line : lines) {
    for (std::size_t i = 0; i + 1 < columns; ++i) fmt::print("{:<{}}  ", line[i], widths[i]);
    fmt::print("{:>{}}\n", line.back(), widths.back());
  }
}

void print_rank(const ParameterLayouts& parameters, const Mesh& mesh, std::int64_t rank) {
  std::vector<std::string> coordinates;
  for (const Axis axis : mesh::all_axes) {
    if (mesh.size(axis) > 1)
      coordinates.push_back(fmt::format("{} {}", name_of(axis), mesh.coordinate(rank, axis)));
  }
  const std::int64_t elements = padded_local_elements(parameters, rank);
  const std::int64_t padding = elements - local_elements(parameters, rank);
  fmt::print("\nrank {}{}: {} elements", rank,
             coordinates.empty() ? "" : fmt::format(" ({})", fmt::join(coordinates, ", ")),
             grouped(elements));
  if (padding > 0) fmt::print(", {} of them padding", grouped(padding));
  for (const DType dtype : formats)
    fmt::print("; {} {}", name_of(dtype), binary_bytes(elements * bytes_of(dtype)));
  fmt::print("\n\n");
  std::vector<Row> rows;
  for (const ParameterLayout& parameter : parameters) {
    const bool other_expert = parameter.spec.expert > 0;
    if (holds(parameter, rank) && !other_expert) add_folded(rows, row_of(parameter, rank));
  }
  print_table(rows);
}

}  // namespace

void print_layout(const ParameterLayouts& parameters, const Mesh& mesh, std::optional<std::int64_t> rank,
                  bool json) {
  const std::vector<std::int64_t> ranks = shown_ranks(parameters, mesh, rank);
  if (json) {
    fmt::print("{}\n", layout_json(parameters, mesh, ranks).dump(2));
    return;
  }
  std::int64_t count = 0;
  for (const ParameterLayout& parameter : parameters) count += parameter.spec.elements();
  fmt::print("layout of {} parameters on mesh {} ({} ranks)\n", grouped(count), mesh.sizes().name(),
             mesh.world());
  for (const std::int64_t shown : ranks) print_rank(parameters, mesh, shown);
}

}  // namespace ndmesh::cli
