#include "ndmesh/plan/recompute_time.h"

#include "ndmesh/plan/activation_bytes.h"

namespace ndmesh::plan {
namespace {

/// Blocks of a pipeline rank by kind, over all its chunks.
UnitCounts blocks_of(const Problem& problem, const schedule::Shape& shape, std::int64_t rank) {
  UnitCounts counts{};
  for (std::int64_t chunk = 0; chunk < shape.chunks; ++chunk) {
    const layout::Range layers = stage_layers(problem, shape, shape.stage_of(rank, chunk));
    for (std::int64_t layer = layers.start; layer < layers.start + layers.size; ++layer) {
      ++counts[static_cast<std::size_t>(problem.model.is_moe(layer) ? UnitKind::moe : UnitKind::dense)];
    }
  }
  return counts;
}

}  // namespace

std::vector<double> recomputed_shares(const Problem& problem, const Candidate& candidate) {
  const schedule::Shape shape = schedule_shape(problem, candidate);
  const Activations activations = activations_of(problem, candidate, problem.model.vocab);
  std::vector<double> shares;
  for (std::int64_t rank = 0; rank < shape.ranks; ++rank) {
    const UnitCounts counts = blocks_of(problem, shape, rank);
    std::int64_t blocks = 0;
    for (const std::int64_t count : counts) {
      blocks += count;
    }
    const KeptActivations kept = kept_on(counts, activations, candidate.recompute,
                                         schedule::peak_in_flight(shape, rank), shape.chunks);
    shares.push_back(blocks > 0 ? static_cast<double>(kept.recomputed) / static_cast<double>(blocks) : 0);
  }
  return shares;
}

}  // namespace ndmesh::plan
