#include "ndmesh/layout/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "ndmesh/base/error.h"

namespace ndmesh::layout {
namespace {

using Kind = Placement::Kind;

/// Checks one tensor; every problem names its shape.
class Checker {
 public:
  Checker(const Shape& shape, const mesh::Mesh& mesh)
      : shape_(shape), mesh_(mesh), dim_cut_(shape.size(), false) {}

  void check_shape() {
    std::int64_t elements = 1;
    for (const std::int64_t size : shape_) {
      if (size < 0) add(fmt::format("size {} is negative", size));
      if (__builtin_mul_overflow(elements, std::max<std::int64_t>(size, 1), &elements)) {
        add("more than 2^63 - 1 elements");
        return;
      }
    }
  }

  void check(const Placement& placement) {
    check_axes(placement);
    if (placement.kind == Kind::replicate) return;
    if (placement.dim < 0 || placement.dim >= static_cast<std::int64_t>(shape_.size())) {
      add(fmt::format("there is no dim {}; dims are 0 to {}", placement.dim, shape_.size() - 1));
      return;
    }
    check_order(placement);
    check_kind(placement);
  }

  void raise() const { problems_.raise(); }

 private:
  void add(const std::string& problem) {
    problems_.add(
        fmt::format("layout of [{}] on mesh {}: {}", fmt::join(shape_, ", "), mesh_.sizes().name(), problem));
  }

  void check_axes(const Placement& placement) {
    for (const mesh::Axis axis : mesh::all_axes) {
      if (placement.axes.contains(axis) && named_.contains(axis)) {
        add(fmt::format("{} is named by two placements", name_of(axis)));
      }
    }
    named_ = named_ | placement.axes;
  }

  /// What may follow what: some kinds need the whole dim, and only one dim may fall into pieces, so that
  /// local memory is a concatenation.
  void check_order(const Placement& placement) {
    const bool needs_whole_dim =
        placement.kind == Kind::padded || placement.kind == Kind::pieces || placement.kind == Kind::shared;
    if (needs_whole_dim && dim_cut_[static_cast<std::size_t>(placement.dim)]) {
      add(fmt::format("\"{}\" must be the first placement that cuts dim {}", placement.describe(),
                      placement.dim));
    }
    dim_cut_[static_cast<std::size_t>(placement.dim)] = true;
    if (placement.kind != Kind::pieces && placement.kind != Kind::zigzag) return;
    if (pieces_dim_ >= 0 && pieces_dim_ != placement.dim) {
      add(fmt::format("dims {} and {} are both cut into pieces; only one may be", pieces_dim_,
                      placement.dim));
    }
    pieces_dim_ = placement.dim;
  }

  void check_kind(const Placement& placement) {
    const std::int64_t size = shape_[static_cast<std::size_t>(placement.dim)];
    if (placement.kind == Kind::padded) check_padded(placement, size);
    if (placement.kind == Kind::shared) check_units(placement, size, placement.units);
    if (placement.kind == Kind::pieces) check_pieces(placement, size);
  }

  void check_padded(const Placement& placement, std::int64_t size) {
    constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
    if (placement.multiple < 1 || placement.multiple > most) {
      add(fmt::format("a dim cannot be padded to a multiple of {}; allowed are 1 to {}", placement.multiple,
                      most));
      return;
    }
    std::int64_t padded = 0;
    if (__builtin_add_overflow(size, std::lcm(placement.multiple, mesh_.size(placement.axes)), &padded)) {
      add("the padded dim has more than 2^63 - 1 indices");
    }
  }

  void check_units(const Placement& placement, std::int64_t size, std::int64_t units) {
    const std::int64_t parts = mesh_.size(placement.axes);
    if (units < 1 || size % units != 0) {
      add(fmt::format("{} indices of dim {} are not {} equal units", size, placement.dim, units));
    } else if (units % parts != 0 && parts % units != 0) {
      add(fmt::format("{} units neither divide nor are divided by the {} ranks of {}", units, parts,
                      placement.axes.name()));
    }
  }

  void check_pieces(const Placement& placement, std::int64_t size) {
    const std::int64_t parts = mesh_.size(placement.axes);
    std::int64_t total = 0;
    bool shares = false;
    for (const Placement::Segment& segment : placement.segments) {
      if (segment.size < 0 || __builtin_add_overflow(total, segment.size, &total)) {
        add(fmt::format("a segment of {} indices is not possible", segment.size));
        return;
      }
      if (segment.units != 0) check_units(placement, segment.size, segment.units);
      shares = shares || (segment.units > 0 && segment.units < parts);
    }
    if (total != size) {
      add(fmt::format("segments of {} indices in all do not add up to the {} of dim {}", total, size,
                      placement.dim));
    }
    // Neighbours that share a unit must hold it at the same place, or a later cut would tear it apart
    // differently.
    for (const Placement::Segment& segment : placement.segments) {
      if (shares && segment.units == 0 && segment.size % parts != 0) {
        add(fmt::format("a segment of {} indices beside shared ones must divide by the {} ranks of {}",
                        segment.size, parts, placement.axes.name()));
      }
    }
  }

  const Shape& shape_;
  const mesh::Mesh& mesh_;
  std::vector<bool> dim_cut_;
  mesh::AxisSet named_;
  std::int64_t pieces_dim_ = -1;
  Problems problems_;
};

}  // namespace

void check_layout(const Shape& shape, const std::vector<Placement>& placements, const mesh::Mesh& mesh) {
  Checker checker(shape, mesh);
  checker.check_shape();
  for (const Placement& placement : placements) checker.check(placement);
  checker.raise();
}

}  // namespace ndmesh::layout
