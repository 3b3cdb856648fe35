#include "ndmesh/mesh/mesh.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "ndmesh/base/error.h"

namespace ndmesh::mesh {
namespace {

/// The size of each axis, by Axis.
constexpr std::array<std::int64_t MeshSizes::*, axis_count> member = {
    &MeshSizes::tp, &MeshSizes::cp, &MeshSizes::dp_shard, &MeshSizes::dp_replicate, &MeshSizes::pp};

std::size_t index(Axis axis) {
  return static_cast<std::size_t>(axis);
}

/// Product of non-negative factors, 2^63 - 1 where it would not fit.
std::int64_t saturating_product(std::initializer_list<std::int64_t> factors) {
  std::int64_t product = 1;
  for (const std::int64_t factor : factors) {
    if (__builtin_mul_overflow(product, factor, &product)) return std::numeric_limits<std::int64_t>::max();
  }
  return product;
}

void check_positive(const MeshSizes& sizes, Problems& problems) {
  const auto check = [&](std::string_view name, std::int64_t size) {
    if (size < 1) problems.add(fmt::format("mesh.{}_size: {} is not allowed; the least is 1", name, size));
  };
  for (const Axis axis : all_axes) check(name_of(axis), sizes.size(axis));
  check("ep", sizes.ep);
  check("etp", sizes.etp);
}

void check_products(const MeshSizes& sizes, Problems& problems) {
  if (sizes.world() > max_world) {
    problems.add(
        fmt::format("mesh: {} has more ranks than the {} that are allowed", sizes.name(), max_world));
    return;
  }
  const std::int64_t experts = saturating_product({sizes.ep, sizes.etp});
  const std::int64_t ranks = sizes.stage_ranks();
  if (ranks % experts != 0) {
    problems.add(
        fmt::format("mesh.ep_size {} x mesh.etp_size {} must divide dp_replicate x dp_shard x cp x tp = {}: "
                    "ep and etp regroup the ranks of a pipeline stage",
                    sizes.ep, sizes.etp, ranks));
  }
}

void check(const MeshSizes& sizes) {
  Problems problems;
  check_positive(sizes, problems);
  problems.raise();
  check_products(sizes, problems);
  problems.raise();
}

}  // namespace

std::int64_t MeshSizes::size(Axis axis) const {
  return this->*member[index(axis)];
}

std::int64_t& MeshSizes::size(Axis axis) {
  return this->*member[index(axis)];
}

std::int64_t MeshSizes::stage_ranks() const {
  return saturating_product({tp, cp, dp_shard, dp_replicate});
}

std::int64_t MeshSizes::world() const {
  return saturating_product({tp, cp, dp_shard, dp_replicate, pp});
}

Mesh::Mesh(MeshSizes sizes, AxisOrder order) : sizes_(sizes), order_(order) {
  check(sizes_);
  for (const Axis axis : order_) {
    stride_[index(axis)] = world_;
    world_ *= sizes_.size(axis);
  }
}

std::int64_t Mesh::size(ExpertAxis axis) const {
  switch (axis) {
    case ExpertAxis::etp:
      return sizes_.etp;
    case ExpertAxis::ep:
      return sizes_.ep;
    case ExpertAxis::edp:
      break;
  }
  return sizes_.stage_ranks() / (sizes_.ep * sizes_.etp);
}

std::int64_t Mesh::size(AxisSet axes) const {
  std::int64_t product = 1;
  for (const Axis axis : all_axes) {
    if (axes.contains(axis)) product *= size(axis);
  }
  return product;
}

std::int64_t Mesh::coordinate(std::int64_t rank, Axis axis) const {
  return rank / stride_[index(axis)] % sizes_.size(axis);
}

std::int64_t Mesh::coordinate(std::int64_t rank, ExpertAxis axis) const {
  const std::int64_t position = stage_position(rank);
  switch (axis) {
    case ExpertAxis::etp:
      return position % sizes_.etp;
    case ExpertAxis::ep:
      return position / sizes_.etp % sizes_.ep;
    case ExpertAxis::edp:
      break;
  }
  return position / (sizes_.etp * sizes_.ep);
}

std::array<std::int64_t, axis_count> Mesh::coordinates(std::int64_t rank) const {
  std::array<std::int64_t, axis_count> result{};
  for (const Axis axis : all_axes) result[index(axis)] = coordinate(rank, axis);
  return result;
}

std::int64_t Mesh::rank_of(const std::array<std::int64_t, axis_count>& coordinates) const {
  std::int64_t rank = 0;
  for (const Axis axis : all_axes) rank += coordinates[index(axis)] * stride_[index(axis)];
  return rank;
}

std::int64_t Mesh::stage_position(std::int64_t rank) const {
  std::int64_t position = 0;
  std::int64_t stride = 1;
  for (const Axis axis : {Axis::tp, Axis::cp, Axis::dp_shard, Axis::dp_replicate}) {
    position += coordinate(rank, axis) * stride;
    stride *= size(axis);
  }
  return position;
}

std::vector<std::int64_t> Mesh::group(std::int64_t rank, AxisSet axes) const {
  std::int64_t first = rank;
  for (const Axis axis : all_axes) {
    if (axes.contains(axis)) first -= coordinate(rank, axis) * stride_[index(axis)];
  }
  std::vector<std::int64_t> members = {first};
  members.reserve(static_cast<std::size_t>(size(axes)));
  for (const Axis axis : order_) {  // the fastest axis first: members come out in ascending order
    if (!axes.contains(axis)) continue;
    const std::size_t inner = members.size();
    for (std::int64_t i = 1; i < size(axis); ++i) {
      for (std::size_t m = 0; m < inner; ++m) members.push_back(members[m] + i * stride_[index(axis)]);
    }
  }
  return members;
}

std::int64_t Mesh::index_in(std::int64_t rank, AxisSet axes) const {
  std::int64_t position = 0;
  std::int64_t stride = 1;
  for (const Axis axis : order_) {
    if (!axes.contains(axis)) continue;
    position += coordinate(rank, axis) * stride;
    stride *= size(axis);
  }
  return position;
}

std::vector<std::vector<std::int64_t>> Mesh::groups(AxisSet axes) const {
  std::vector<std::vector<std::int64_t>> result;
  for (std::int64_t rank = 0; rank < world_; ++rank) {
    if (index_in(rank, axes) == 0) result.push_back(group(rank, axes));
  }
  return result;
}

std::vector<std::vector<std::int64_t>> Mesh::groups(ExpertAxis axis) const {
  const std::int64_t ranks = sizes_.stage_ranks();
  std::vector<std::int64_t> rank_at(
      static_cast<std::size_t>(world_));  // by stage, then position in the stage
  for (std::int64_t rank = 0; rank < world_; ++rank) {
    rank_at[static_cast<std::size_t>(coordinate(rank, Axis::pp) * ranks + stage_position(rank))] = rank;
  }
  const std::int64_t stride = axis == ExpertAxis::etp  ? 1
                              : axis == ExpertAxis::ep ? sizes_.etp
                                                       : sizes_.etp * sizes_.ep;
  std::vector<std::vector<std::int64_t>> result;
  for (std::int64_t first = 0; first < world_; ++first) {
    if (first % ranks / stride % size(axis) != 0) continue;
    std::vector<std::int64_t>& members = result.emplace_back();
    for (std::int64_t i = 0; i < size(axis); ++i) {
      members.push_back(rank_at[static_cast<std::size_t>(first + i * stride)]);
    }
  }
  std::sort(result.begin(), result.end(), [](const auto& a, const auto& b) {
    return *std::min_element(a.begin(), a.end()) < *std::min_element(b.begin(), b.end());
  });
  return result;
}

}  // namespace ndmesh::mesh
