#include "ndmesh/plan/memory/leanest_cut.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace ndmesh::plan {
namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();

class LeanestCut {
 public:
  LeanestCut(const LayerCosts& costs, const UnitCounter& counter, const schedule::Shape& shape,
             const RankBytes& bytes)
      : layers_(costs.layers()),
        counter_(counter),
        shape_(shape),
        bytes_(bytes),
        costs_(costs),
        by_number_(shape.chunks > 1 || moe_in(counter.blocks_of({0, layers_})) % layers_ == 0),
        known_(static_cast<std::size_t>(shape.ranks * (layers_ + 1))) {}

  std::vector<layout::Range> run() {
    // No cut that is fuller than one already known is of interest, which spares most of the looks.
    const double known = fullest_rank(layout::even_stages(layers_, shape_.ranks));
    const double most = fullest_rank(cheapest_within(
        known, [&](std::int64_t rank, const layout::Range& layers) { return bytes(rank, layers); }));
    const std::vector<layout::Range> cut = cheapest_within(
        most, [&](std::int64_t rank, const layout::Range& layers) { return cost(rank, layers); });
    return shape_.chunks == 1 ? cut : over_chunks(cut);
  }

 private:
  /// The layers of each rank where none needs more than `most` bytes.
  template <typename Cost>
  std::vector<layout::Range> cheapest_within(double most, const Cost& cost_of) {
    return cheapest_cut(layers_, shape_.ranks, [&](std::int64_t rank, const layout::Range& layers) {
      return bytes(rank, layers) > most ? infinite : cost_of(rank, layers);
    });
  }

  double fullest_rank(const std::vector<layout::Range>& of_ranks) {
    double most = 0;
    for (std::int64_t rank = 0; rank < shape_.ranks; ++rank) {
      most = std::max(most, bytes(rank, of_ranks[static_cast<std::size_t>(rank)]));
    }
    return most;
  }

  /// Of a rank with these layers, or, of several chunks, with as many. Where layers are alike, and with several chunks, only
  /// their number counts.
  double bytes(std::int64_t rank, const layout::Range& layers) {
    if (layers.size < shape_.chunks) return infinite;
    const std::int64_t moe = by_number_ ? 0 : moe_in(counter_.blocks_of(layers));
    auto& known = known_[static_cast<std::size_t>(rank * (layers_ + 1) + layers.size)];
    for (const Known& one : known) {
      if (one.moe == moe) return one.bytes;
    }
    const std::vector<UnitCounts> blocks =
        shape_.chunks == 1 ? std::vector{counter_.blocks_of(layers)} : dealt_out(layers.size);
    known.push_back({moe, static_cast<double>(bytes_(counter_.units_of(shape_, blocks, rank)))});
    return known.back().bytes;
  }

  static std::int64_t moe_in(const UnitCounts& counts) {
    return counts[static_cast<std::size_t>(UnitKind::moe)];
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
      const std::int64_t moe = moe_in(all) * size / layers_;
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
  const LayerCosts& costs_;
  bool by_number_;                         ///< bytes depend on how many layers a rank has, not on which
  std::vector<std::vector<Known>> known_;  ///< by rank and number of layers
};

}  // namespace

std::vector<layout::Range> leanest_cut(const LayerCosts& costs, const UnitCounter& counter,
                                       const schedule::Shape& shape, const RankBytes& bytes) {
  return LeanestCut(costs, counter, shape, bytes).run();
}

}  // namespace ndmesh::plan
