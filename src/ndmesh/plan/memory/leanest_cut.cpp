#include "ndmesh/plan/memory/leanest_cut.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "ndmesh/model/config.h"
#include "ndmesh/plan/stage_cut.h"

namespace ndmesh::plan {
namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();

class LeanestCut {
 public:
  LeanestCut(const Problem& problem, const UnitCounter& counter, const schedule::Shape& shape,
             const RankBytes& bytes)
      : layers_(problem.model.layers),
        counter_(counter),
        shape_(shape),
        bytes_(bytes),
        costs_(layer_costs(problem), model::head_flops_per_token(problem.model)),
        known_(static_cast<std::size_t>(shape.ranks * (layers_ + 1))) {}

  std::vector<layout::Range> run() {
    const auto needed = [&](std::int64_t rank, const layout::Range& layers) { return bytes(rank, layers); };
    const std::vector<layout::Range> leanest = cheapest_cut(layers_, shape_.ranks, needed);
    double most = 0;
    for (std::int64_t rank = 0; rank < shape_.ranks; ++rank) {
      most = std::max(most, bytes(rank, leanest[static_cast<std::size_t>(rank)]));
    }
    const std::vector<layout::Range> cut =
        cheapest_cut(layers_, shape_.ranks, [&](std::int64_t rank, const layout::Range& layers) {
          return bytes(rank, layers) > most ? infinite : cost(rank, layers);
        });
    return shape_.chunks == 1 ? cut : over_chunks(cut);
  }

 private:
  /// Of a rank with these layers, or, of several chunks, with as many.
  double bytes(std::int64_t rank, const layout::Range& layers) {
    if (layers.size < shape_.chunks) return infinite;
    const UnitCounts blocks = counter_.blocks_of(shape_.chunks == 1 ? layers : layout::Range{0, layers.size});
    const std::int64_t moe = shape_.chunks == 1 ? blocks[static_cast<std::size_t>(UnitKind::moe)] : 0;
    auto& known = known_[static_cast<std::size_t>(rank * (layers_ + 1) + layers.size)];
    const auto found = std::ranges::find(known, moe, &Known::moe);
    if (found != known.end()) return found->bytes;
    const StageUnits units = shape_.chunks == 1 ? counter_.units_of(shape_, std::span(&blocks, 1), rank)
                                                : counter_.units_of(shape_, dealt_out(layers.size), rank);
    return known.emplace_back(Known{moe, static_cast<double>(bytes_(units))}).bytes;
  }

  /// In floating-point operations of a token.
  double cost(std::int64_t rank, const layout::Range& layers) const {
    const double blocks = shape_.chunks == 1 ? costs_.of(layers)
                                             : costs_.of({0, layers_}) * static_cast<double>(layers.size) /
                                                   static_cast<double>(layers_);
    return blocks + (shape_.rank_of(shape_.stages() - 1) == rank ? costs_.last() : 0);
  }

  std::int64_t size_of_chunk(std::int64_t layers, std::int64_t chunk) const {
    return layers / shape_.chunks + (chunk < layers % shape_.chunks ? 1 : 0);
  }

  std::vector<UnitCounts> dealt_out(std::int64_t layers) const {
    const UnitCounts all = counter_.blocks_of({0, layers_});
    std::vector<UnitCounts> chunks(static_cast<std::size_t>(shape_.chunks));
    for (std::int64_t chunk = 0; chunk < shape_.chunks; ++chunk) {
      const std::int64_t size = size_of_chunk(layers, chunk);
      const std::int64_t moe = all[static_cast<std::size_t>(UnitKind::moe)] * size / layers_;
      UnitCounts& counts = chunks[static_cast<std::size_t>(chunk)];
      counts[static_cast<std::size_t>(UnitKind::moe)] = moe;
      counts[static_cast<std::size_t>(UnitKind::dense)] = size - moe;
    }
    return chunks;
  }

  std::vector<layout::Range> over_chunks(const std::vector<layout::Range>& by_rank) const {
    std::vector<std::int64_t> sizes;
    for (std::int64_t stage = 0; stage < shape_.stages(); ++stage) {
      const layout::Range& layers = by_rank[static_cast<std::size_t>(shape_.rank_of(stage))];
      sizes.push_back(size_of_chunk(layers.size, shape_.chunk_of(stage)));
    }
    const std::vector<layout::Range> cut = stages_of(sizes);
    const std::vector<layout::Range> even = layout::even_stages(layers_, shape_.stages());
    return fullest(cut) < fullest(even) ? cut : even;
  }

  std::int64_t fullest(const std::vector<layout::Range>& cut) const {
    std::int64_t most = 0;
    for (std::int64_t rank = 0; rank < shape_.ranks; ++rank) {
      most = std::max(most, bytes_(counter_.units_of(shape_, cut, rank)));
    }
    return most;
  }

  struct Known {
    std::int64_t moe;  ///< of the layers
    double bytes;
  };

  std::int64_t layers_;
  const UnitCounter& counter_;
  const schedule::Shape& shape_;
  const RankBytes& bytes_;
  LayerCosts costs_;
  std::vector<std::vector<Known>> known_;  ///< by rank and number of layers
};

}  // namespace

std::vector<layout::Range> leanest_cut(const Problem& problem, const UnitCounter& counter,
                                       const schedule::Shape& shape, const RankBytes& bytes) {
  return LeanestCut(problem, counter, shape, bytes).run();
}

}  // namespace ndmesh::plan
