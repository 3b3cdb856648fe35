#include "ndmesh/plan/memory/stage_units.h"

namespace ndmesh::plan {
namespace {

constexpr auto dense = static_cast<std::size_t>(UnitKind::dense);
constexpr auto moe = static_cast<std::size_t>(UnitKind::moe);
constexpr auto mtp = static_cast<std::size_t>(UnitKind::mtp);

}  // namespace

UnitCounts StageUnits::blocks_of_chunk(std::int64_t chunk) const {
  if (!by_chunk.empty()) return by_chunk[static_cast<std::size_t>(chunk)];
  UnitCounts blocks{};
  for (const std::size_t kind : {dense, moe, mtp}) blocks[kind] = counts[kind] / chunks;
  return blocks;
}

UnitCounter::UnitCounter(const Problem& problem) : problem_(problem), moe_before_(1, 0) {
  for (std::int64_t layer = 0; layer < problem.model.layers; ++layer) {
    moe_before_.push_back(moe_before_.back() + (problem.model.is_moe(layer) ? 1 : 0));
  }
}

UnitCounts UnitCounter::blocks_of(const layout::Range& layers) const {
  UnitCounts counts{};
  counts[moe] = moe_before_[static_cast<std::size_t>(layers.start + layers.size)] -
                moe_before_[static_cast<std::size_t>(layers.start)];
  counts[dense] = layers.size - counts[moe];
  return counts;
}

StageUnits UnitCounter::units_of(const schedule::Shape& shape, const std::vector<layout::Range>& cut,
                                 std::int64_t rank) const {
  StageUnits units = without_blocks(shape, rank);
  for (std::int64_t chunk = 0; chunk < shape.chunks; ++chunk) {
    add_chunk(units, chunk, blocks_of(cut[static_cast<std::size_t>(shape.stage_of(rank, chunk))]));
  }
  return units;
}

StageUnits UnitCounter::units_of(const schedule::Shape& shape, std::span<const UnitCounts> blocks,
                                 std::int64_t rank) const {
  StageUnits units = without_blocks(shape, rank);
  for (std::int64_t chunk = 0; chunk < shape.chunks; ++chunk) {
    add_chunk(units, chunk, blocks[static_cast<std::size_t>(chunk)]);
  }
  return units;
}

StageUnits UnitCounter::without_blocks(const schedule::Shape& shape, std::int64_t rank) const {
  StageUnits units;
  units.problem = &problem_;
  units.shape = shape;
  units.rank = rank;
  units.chunks = shape.chunks;
  units.chunk_micro_batches = peak_in_flight(problem_, shape, rank);
  units.count(UnitKind::first) = shape.rank_of(0) == rank ? 1 : 0;
  units.count(UnitKind::last) = shape.rank_of(shape.stages() - 1) == rank ? 1 : 0;
  return units;
}

/// Chunks are listed from the first on that differs from those before.
void UnitCounter::add_chunk(StageUnits& units, std::int64_t chunk, UnitCounts blocks) const {
  if (units.shape.stage_of(units.rank, chunk) + 1 == units.shape.stages()) {
    blocks[mtp] = problem_.model.mtp_layers;
  }
  if (chunk > 0 && units.by_chunk.empty()) {
    UnitCounts before{};
    for (const std::size_t kind : {dense, moe, mtp}) before[kind] = units.counts[kind] / chunk;
    if (before != blocks) units.by_chunk.assign(static_cast<std::size_t>(chunk), before);
  }
  if (!units.by_chunk.empty()) units.by_chunk.push_back(blocks);
  for (const std::size_t kind : {dense, moe, mtp}) units.counts[kind] += blocks[kind];
}

}  // namespace ndmesh::plan
