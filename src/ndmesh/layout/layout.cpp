#include "ndmesh/layout/layout.h"

#include <algorithm>
#include <functional>
#include <stdexcept>

#include "ndmesh/layout/check.h"
#include "ndmesh/layout/cut.h"

namespace ndmesh::layout {
namespace {

using Kind = Placement::Kind;

std::int64_t product(const Shape& shape) {
  std::int64_t result = 1;
  for (const std::int64_t size : shape) result *= size;
  return result;
}

Shape extents(const std::vector<Ranges>& ranges) {
  Shape shape;
  for (const Ranges& dim : ranges) shape.push_back(extent(dim));
  return shape;
}

/// One box for each combination of ranges; at most one dim has several.
std::vector<Box> boxes_of(const std::vector<Ranges>& ranges) {
  std::vector<Box> boxes = {{}};
  for (const Ranges& dim : ranges) {
    std::vector<Box> longer;
    for (const Box& box : boxes) {
      for (const Range& range : dim) {
        longer.push_back(box);
        longer.back().push_back(range);
      }
    }
    boxes = std::move(longer);
  }
  return boxes;
}

/// Units of the segment in which index `start` lies; 0 where it is cut as shard.
std::int64_t units_at(const Placement& placement, std::int64_t start) {
  std::int64_t end = 0;
  for (const Placement::Segment& segment : placement.segments) {
    end += segment.size;
    if (start < end) return segment.units;
  }
  return 0;
}

/// How many ranks of group(rank, axes & placement.axes) hold what `rank` holds when `placement` cuts into
/// `units` units.
std::int64_t sharing_ranks(const Placement& placement, std::int64_t units, const mesh::Mesh& mesh,
                           std::int64_t rank, mesh::AxisSet axes) {
  const std::int64_t sharing = ranks_per_unit(units, mesh.size(placement.axes));
  if (sharing == 1) return 1;
  const auto unit = [&](std::int64_t r) { return mesh.index_in(r, placement.axes) / sharing; };
  const std::vector<std::int64_t> members = mesh.group(rank, axes & placement.axes);
  return std::count_if(members.begin(), members.end(), [&](std::int64_t r) { return unit(r) == unit(rank); });
}

/// Whether ranks that differ only in `axis` hold different parts.
bool cuts(const Placement& placement, mesh::Axis axis, const mesh::Mesh& mesh) {
  if (placement.kind == Kind::replicate || mesh.size(axis) == 1) return false;
  const auto cuts_units = [&](std::int64_t units) {
    return units == 0 || sharing_ranks(placement, units, mesh, 0, {axis}) < mesh.size(axis);
  };
  if (placement.kind != Kind::pieces) return cuts_units(placement.units);
  return std::any_of(placement.segments.begin(), placement.segments.end(),
                     [&](const Placement::Segment& s) { return s.size > 0 && cuts_units(s.units); });
}

std::int64_t placement_copies(const Placement& placement, const Box& box, const mesh::Mesh& mesh,
                              std::int64_t rank, mesh::AxisSet axes) {
  if (placement.kind == Kind::replicate) return mesh.size(axes & placement.axes);
  if (placement.kind == Kind::shared) return sharing_ranks(placement, placement.units, mesh, rank, axes);
  if (placement.kind != Kind::pieces) return 1;
  const std::int64_t units = units_at(placement, box[static_cast<std::size_t>(placement.dim)].start);
  return units == 0 ? 1 : sharing_ranks(placement, units, mesh, rank, axes);
}

}  // namespace

std::int64_t elements(const Box& box) {
  std::int64_t count = 1;
  for (const Range& range : box) count *= range.size;
  return count;
}

Range split(std::int64_t extent, std::int64_t parts, std::int64_t index) {
  const std::int64_t least = extent / parts;
  const std::int64_t larger = extent % parts;  // so many parts, the first ones, have one more
  return {index * least + std::min(index, larger), least + (index < larger ? 1 : 0)};
}

TensorLayout::TensorLayout(Shape shape, std::vector<Placement> placements, const mesh::Mesh& mesh)
    : shape_(std::move(shape)), placements_(std::move(placements)), mesh_(mesh) {
  check_layout(shape_, placements_, mesh_);
}

std::vector<Ranges> TensorLayout::padded_ranges(std::int64_t rank) const {
  std::vector<Ranges> ranges;
  for (const std::int64_t size : shape_) ranges.push_back({{0, size}});
  for (const Placement& placement : placements_) {
    if (placement.kind == Kind::replicate) continue;
    Ranges& dim = ranges[static_cast<std::size_t>(placement.dim)];
    dim = cut(placement, dim, mesh_.size(placement.axes), mesh_.index_in(rank, placement.axes));
  }
  return ranges;
}

std::vector<Box> TensorLayout::boxes(std::int64_t rank) const {
  std::vector<Ranges> ranges = padded_ranges(rank);
  for (std::size_t dim = 0; dim < ranges.size(); ++dim)
    ranges[dim] = without_padding(ranges[dim], shape_[dim]);
  return boxes_of(ranges);
}

Shape TensorLayout::local_shape(std::int64_t rank) const {
  std::vector<Ranges> ranges = padded_ranges(rank);
  for (std::size_t dim = 0; dim < ranges.size(); ++dim)
    ranges[dim] = without_padding(ranges[dim], shape_[dim]);
  return extents(ranges);
}

std::int64_t TensorLayout::local_elements(std::int64_t rank) const {
  return product(local_shape(rank));
}

Shape TensorLayout::padded_local_shape(std::int64_t rank) const {
  return extents(padded_ranges(rank));
}

std::int64_t TensorLayout::padded_local_elements(std::int64_t rank) const {
  return product(padded_local_shape(rank));
}

mesh::AxisSet TensorLayout::cut_axes() const {
  mesh::AxisSet result;
  for (const Placement& placement : placements_) {
    for (const mesh::Axis axis : mesh::all_axes) {
      if (placement.axes.contains(axis) && cuts(placement, axis, mesh_)) result = result.with(axis);
    }
  }
  return result;
}

std::vector<std::int64_t> TensorLayout::box_copies(std::int64_t rank, mesh::AxisSet axes) const {
  mesh::AxisSet unnamed = axes;
  for (const mesh::Axis axis : mesh::all_axes) {
    const bool named = std::any_of(placements_.begin(), placements_.end(),
                                   [&](const Placement& placement) { return placement.axes.contains(axis); });
    if (named) unnamed = unnamed.without(axis);
  }
  std::vector<std::int64_t> result;
  for (const Box& box : boxes(rank)) {
    std::int64_t copies = mesh_.size(unnamed);
    for (const Placement& placement : placements_) {
      copies *= placement_copies(placement, box, mesh_, rank, axes);
    }
    result.push_back(copies);
  }
  return result;
}

std::int64_t TensorLayout::copies(std::int64_t rank, mesh::AxisSet axes) const {
  const std::vector<std::int64_t> all = box_copies(rank, axes);
  if (std::adjacent_find(all.begin(), all.end(), std::not_equal_to<>()) != all.end()) {
    throw std::logic_error("TensorLayout::copies: boxes differ in their copies; box_copies tells them apart");
  }
  return all.front();
}

std::int64_t all_gather_bytes(std::int64_t bytes, std::int64_t ranks) {
  return bytes - bytes / ranks;
}

std::int64_t reduce_scatter_bytes(std::int64_t bytes, std::int64_t ranks) {
  return bytes - bytes / ranks;
}

std::int64_t all_reduce_bytes(std::int64_t bytes, std::int64_t ranks) {
  return 2 * (bytes - bytes / ranks);
}

}  // namespace ndmesh::layout
