#pragma once

#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "ndmesh/layout/layout.h"
#include "ndmesh/plan/memory/memory_states.h"

namespace ndmesh::plan {

/// Dense, MoE and multi-token prediction blocks together.
inline std::int64_t blocks_in(const UnitCounts& counts) {
  return counts[static_cast<std::size_t>(UnitKind::dense)] + counts[static_cast<std::size_t>(UnitKind::moe)] +
         counts[static_cast<std::size_t>(UnitKind::mtp)];
}

/// What one pipeline rank has of the model, and what its schedule keeps in flight of it.
struct StageUnits {
  UnitCounts counts{};
  std::vector<UnitCounts> by_chunk;      ///< blocks of each chunk, where chunks are unequal; else none
  std::int64_t chunk_micro_batches = 1;  ///< activations that it holds at once, counted in chunks
  std::int64_t chunks = 1;

  const Problem* problem = nullptr;
  schedule::Shape shape;
  std::int64_t rank = 0;  ///< of the pipeline

  std::int64_t& count(UnitKind kind) { return counts[static_cast<std::size_t>(kind)]; }
  std::int64_t count(UnitKind kind) const { return counts[static_cast<std::size_t>(kind)]; }
  std::int64_t blocks() const { return blocks_in(counts); }
  UnitCounts blocks_of_chunk(std::int64_t chunk) const;

  /// The most that what is in flight weighs together, where one micro-batch of chunk c weighs weights[c].
  std::int64_t most_in_flight(std::span<const std::int64_t> weights) const {
    return peak_in_flight(*problem, shape, rank, weights);
  }
};

/// Counts the units of pipeline ranks. Sums over the layers before each are made once, so that a count costs one look a
/// chunk.
class UnitCounter {
 public:
  /// `problem` must outlive the counter and what it returns.
  explicit UnitCounter(const Problem& problem);

  /// Of pipeline rank `rank`; `cut` has every stage's layers.
  StageUnits units_of(const schedule::Shape& shape, const std::vector<layout::Range>& cut,
                      std::int64_t rank) const;
  /// The same of a rank with `blocks` in its chunks.
  StageUnits units_of(const schedule::Shape& shape, std::span<const UnitCounts> blocks,
                      std::int64_t rank) const;
  /// Dense and MoE blocks among decoder layers.
  UnitCounts blocks_of(const layout::Range& layers) const;

 private:
  void add_chunk(StageUnits& units, std::int64_t chunk, UnitCounts blocks) const;
  StageUnits without_blocks(const schedule::Shape& shape, std::int64_t rank) const;

  const Problem& problem_;
  std::vector<std::int64_t> moe_before_;  ///< by decoder layer, and behind the last
};

}  // namespace ndmesh::plan
