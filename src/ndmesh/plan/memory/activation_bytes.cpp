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

std::int64_t in_flight_bytes(std::int64_t micro_batch, std::int64_t chunk_micro_batches,
                             std::int64_t chunks) {
  const std::int64_t bytes = micro_batch * chunk_micro_batches;
  return chunks == 1 ? bytes : bytes / chunks;
}

/// Blocks that `every` and `budget` recompute of `blocks` with `bytes` in all, of which one block frees
/// `freed`.
std::int64_t recomputed_blocks(const job::Recompute& recompute, std::int64_t blocks, std::int64_t bytes,
                               std::int64_t freed) {
  if (recompute.policy == Policy::every) return ceil_div(blocks, recompute.layers);
  const std::int64_t excess = std::max<std::int64_t>(0, bytes - recompute.bytes);
  return freed > 0 ? std::min(blocks, ceil_div(excess, freed)) : blocks;
}

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

KeptActivations kept_on(const UnitCounts& counts, const Activations& activations,
                        const job::Recompute& recompute, std::int64_t chunk_micro_batches,
                        std::int64_t chunks) {
  std::int64_t blocks = 0;
  std::int64_t kept = 0;
  std::int64_t backward = 0;
  std::int64_t whole = 0;
  for (std::size_t kind = 0; kind < activations.blocks.size(); ++kind) {
    if (counts[kind] == 0) continue;
    const BlockActivations& block = activations.blocks[kind];
    blocks += counts[kind];
    kept += counts[kind] * block.kept;
    backward = std::max(backward, block.backward);
    whole = std::max(whole, block.whole);
  }
  if (recompute.policy == Policy::none || recompute.policy == Policy::selective) {
    return {in_flight_bytes(kept, chunk_micro_batches, chunks), backward, 0};
  }
  const std::int64_t least = std::min(kept, blocks * activations.boundary);
  const std::int64_t in_flight = in_flight_bytes(kept, chunk_micro_batches, chunks);
  const std::int64_t freed_by_all = in_flight - in_flight_bytes(least, chunk_micro_batches, chunks);
  const std::int64_t again = whole - activations.boundary;
  if (recompute.policy == Policy::full) return {in_flight - freed_by_all, backward + again, blocks};
  const std::int64_t freed = blocks > 0 ? freed_by_all / blocks : 0;
  const std::int64_t recomputed = recomputed_blocks(recompute, blocks, in_flight, freed);
  if (recomputed == 0) return {in_flight, backward, 0};
  // A budget recomputes the first blocks: those that keep everything are done when a forward runs again.
  const std::int64_t done = recompute.policy == Policy::budget ? kept / blocks * (blocks - recomputed) : 0;
  return {in_flight - (recomputed == blocks ? freed_by_all : recomputed * freed),
          backward + std::max<std::int64_t>(0, again - done), recomputed};
}

}  // namespace ndmesh::plan
