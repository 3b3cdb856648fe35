#include "ndmesh/plan/memory/activation_bytes.h"

#include <algorithm>

#include "ndmesh/plan/integers.h"
#include "ndmesh/plan/memory/sizes.h"

namespace ndmesh::plan {
namespace {

using Policy = job::Recompute::Policy;

BlockActivations block(const Problem& problem, const MicroBatch& micro, Selective selective, bool moe) {
  const std::vector<SavedTensor> saved = saved_by_block(problem, micro, moe);
  return {.kept = total(saved, selective),
          .whole = total(saved),
          .backward = backward_bytes(problem, micro, moe) + made_again_bytes(saved, selective),
          .brought_back = brought_back_bytes(problem, micro, moe)};
}

/// Passes in flight, counted in chunks.
struct InFlight {
  std::int64_t passes;
  std::int64_t chunks;

  /// Of what the chunks keep of one micro-batch together.
  std::int64_t bytes(std::int64_t micro_batch) const {
    return chunks == 1 ? micro_batch * passes : micro_batch * passes / chunks;
  }
};

/// Blocks of a rank or a chunk.
struct Blocks {
  std::int64_t count = 0;
  std::int64_t kept = 0;      ///< of one micro-batch, where nothing is recomputed
  std::int64_t backward = 0;  ///< of the block that needs most
  std::int64_t whole = 0;     ///< likewise

  Blocks(const UnitCounts& counts, const Activations& activations) {
    for (std::size_t kind = 0; kind < activations.blocks.size(); ++kind) {
      if (counts[kind] == 0) continue;
      const BlockActivations& block = activations.blocks[kind];
      count += counts[kind];
      kept += counts[kind] * block.kept;
      backward = std::max(backward, block.backward);
      whole = std::max(whole, block.whole);
    }
  }

  /// Bytes of one micro-batch, where everything is recomputed.
  std::int64_t least(const Activations& activations) const {
    return std::min(kept, count * activations.boundary);
  }

  /// On top, in a backward whose forward runs again. A budget recomputes the first blocks: those that keep everything are
  /// done by then.
  std::int64_t backward_again(const Activations& activations, const job::Recompute& recompute,
                              std::int64_t recomputed) const {
    const std::int64_t done = recompute.policy == Policy::budget ? kept / count * (count - recomputed) : 0;
    return backward + std::max<std::int64_t>(0, whole - activations.boundary - done);
  }
};

/// Blocks that `every` and `budget` recompute of `blocks` with `bytes` in all, of which one block frees
/// `freed`.
std::int64_t recomputed_blocks(const job::Recompute& recompute, std::int64_t blocks, std::int64_t bytes,
                               std::int64_t freed) {
  if (recompute.policy == Policy::every) return ceil_div(blocks, recompute.layers);
  const std::int64_t excess = std::max<std::int64_t>(0, bytes - recompute.bytes);
  return freed > 0 ? std::min(blocks, ceil_div(excess, freed)) : blocks;
}

/// Of chunks that keep as much as each other.
KeptActivations kept_by_all(const UnitCounts& counts, const Activations& activations,
                            const job::Recompute& recompute, const InFlight& flying) {
  const Blocks blocks(counts, activations);
  const std::int64_t in_flight = flying.bytes(blocks.kept);
  if (recompute.policy == Policy::none || recompute.policy == Policy::selective) {
    return {in_flight, blocks.backward, 0};
  }
  const std::int64_t freed_by_all = in_flight - flying.bytes(blocks.least(activations));
  if (recompute.policy == Policy::full) {
    return {in_flight - freed_by_all, blocks.backward + blocks.whole - activations.boundary, blocks.count};
  }
  const std::int64_t freed = blocks.count > 0 ? freed_by_all / blocks.count : 0;
  const std::int64_t recomputed = recomputed_blocks(recompute, blocks.count, in_flight, freed);
  if (recomputed == 0) return {in_flight, blocks.backward, 0};
  return {in_flight - (recomputed == blocks.count ? freed_by_all : recomputed * freed),
          blocks.backward_again(activations, recompute, recomputed), recomputed};
}

/// Of chunks that keep different amounts: what the schedule has in flight at its fullest decides.
class KeptByChunk {
 public:
  KeptByChunk(const StageUnits& units, const Activations& activations, const job::Recompute& recompute)
      : units_(units), activations_(activations), recompute_(recompute), all_(units.counts, activations) {
    for (std::int64_t chunk = 0; chunk < units.chunks; ++chunk) {
      chunks_.emplace_back(units.blocks_of_chunk(chunk), activations);
    }
    weights_.resize(chunks_.size());
  }

  KeptActivations run() {
    const std::int64_t recomputed = recomputed_in_all();
    const std::int64_t backward =
        recomputed == 0 ? all_.backward : all_.backward_again(activations_, recompute_, recomputed);
    return {bytes(recomputed), backward, recomputed};
  }

 private:
  std::int64_t recomputed_in_all() {
    switch (recompute_.policy) {
      case Policy::none:
      case Policy::selective:
        return 0;
      case Policy::full:
        return all_.count;
      case Policy::every:
        return ceil_div(all_.count, recompute_.layers);
      case Policy::budget:
        return fewest_within(recompute_.bytes);
    }
    return 0;
  }

  /// More recomputed blocks never keep more.
  std::int64_t fewest_within(std::int64_t allowed) {
    std::int64_t low = 0;
    std::int64_t high = all_.count;
    while (low < high) {
      const std::int64_t middle = (low + high) / 2;
      if (bytes(middle) <= allowed) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low;
  }

  /// Where `recomputed` blocks of the rank are recomputed: every n-th, or the first ones.
  std::int64_t bytes(std::int64_t recomputed) {
    std::int64_t before = 0;  // blocks of earlier chunks
    for (std::size_t c = 0; c < chunks_.size(); ++c) {
      const std::int64_t behind = before + chunks_[c].count;
      const std::int64_t here = recomputed_before(behind, recomputed) - recomputed_before(before, recomputed);
      weights_[c] =
          here == chunks_[c].count ? chunks_[c].least(activations_) : chunks_[c].kept - here * freed();
      before = behind;
    }
    return units_.most_in_flight(weights_);
  }

  std::int64_t recomputed_before(std::int64_t block, std::int64_t recomputed) const {
    return recompute_.policy == Policy::every ? ceil_div(block, recompute_.layers)
                                              : std::min(block, recomputed);
  }

  /// By recomputing a block, of one micro-batch.
  std::int64_t freed() const { return (all_.kept - all_.least(activations_)) / all_.count; }

  const StageUnits& units_;
  const Activations& activations_;
  const job::Recompute& recompute_;
  Blocks all_;
  std::vector<Blocks> chunks_;
  std::vector<std::int64_t> weights_;
};

}  // namespace

Activations activations_of(const Problem& problem, const Candidate& candidate, std::int64_t vocab) {
  const MicroBatch micro = micro_batch(problem, candidate);
  const Selective selective =
      candidate.recompute.policy == Policy::selective ? problem.profile.memory.selective : Selective::nothing;
  Activations result;
  const auto of_kind = [&](bool moe) { return block(problem, micro, selective, moe); };
  result.blocks[0] = of_kind(false);
  if (problem.model.experts) result.blocks[1] = of_kind(true);
  if (problem.model.mtp_layers > 0) result.blocks[2] = of_kind(problem.model.is_moe(problem.model.layers));
  result.boundary = boundary_bytes(problem, micro);
  result.ends = total(saved_by_ends(problem, micro));
  result.logits = logits_bytes(problem, micro, vocab);
  const std::int64_t batches = problem.profile.memory.inputs_of_step ? micro_batches(problem, candidate) : 1;
  result.inputs = batches * 2 * rounded(micro.tokens * 8);
  return result;
}

KeptActivations kept_on(const StageUnits& units, const Activations& activations,
                        const job::Recompute& recompute) {
  const bool some = recompute.policy == Policy::every || recompute.policy == Policy::budget;
  const bool alike = units.chunks == 1 || (units.by_chunk.empty() && !some);
  return alike ? kept_by_all(units.counts, activations, recompute, {units.chunk_micro_batches, units.chunks})
               : KeptByChunk(units, activations, recompute).run();
}

std::int64_t least_kept(const UnitCounts& counts, const Activations& activations,
                        const job::Recompute& recompute, std::int64_t chunks) {
  return kept_by_all(counts, activations, recompute, {1, chunks}).bytes;
}

}  // namespace ndmesh::plan
