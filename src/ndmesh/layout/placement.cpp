#include <fmt/format.h>

#include "ndmesh/layout/layout.h"

namespace ndmesh::layout {
namespace {

Placement made(Placement::Kind kind, mesh::AxisSet axes, std::int64_t dim) {
  Placement placement;
  placement.kind = kind;
  placement.axes = axes;
  placement.dim = dim;
  return placement;
}

}  // namespace

Placement Placement::replicate(mesh::AxisSet axes) {
  return made(Kind::replicate, axes, 0);
}

Placement Placement::shard(mesh::AxisSet axes, std::int64_t dim) {
  return made(Kind::shard, axes, dim);
}

Placement Placement::padded(mesh::AxisSet axes, std::int64_t dim, std::int64_t multiple) {
  Placement placement = made(Kind::padded, axes, dim);
  placement.multiple = multiple;
  return placement;
}

Placement Placement::pieces(mesh::AxisSet axes, std::int64_t dim, std::vector<Segment> segments) {
  Placement placement = made(Kind::pieces, axes, dim);
  placement.segments = std::move(segments);
  return placement;
}

Placement Placement::shared(mesh::AxisSet axes, std::int64_t dim, std::int64_t units) {
  Placement placement = made(Kind::shared, axes, dim);
  placement.units = units;
  return placement;
}

Placement Placement::zigzag(mesh::AxisSet axes, std::int64_t dim) {
  return made(Kind::zigzag, axes, dim);
}

std::string Placement::describe() const {
  switch (kind) {
    case Kind::replicate:
      return fmt::format("copies over {}", axes.name());
    case Kind::shard:
      return fmt::format("dim {} over {}", dim, axes.name());
    case Kind::padded:
      return fmt::format("dim {} padded to a multiple of {} over {}", dim, multiple, axes.name());
    case Kind::pieces:
      return fmt::format("dim {} in {} segments over {}", dim, segments.size(), axes.name());
    case Kind::shared:
      return fmt::format("dim {} in {} units over {}", dim, units, axes.name());
    case Kind::zigzag:
      break;
  }
  return fmt::format("dim {} zigzag over {}", dim, axes.name());
}

}  // namespace ndmesh::layout
