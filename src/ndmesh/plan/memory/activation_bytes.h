#pragma once

#include "ndmesh/plan/memory/memory_states.h"
#include "ndmesh/plan/memory/saved_tensors.h"
#include "ndmesh/plan/memory/stage_units.h"

namespace ndmesh::plan {

/// One block and one micro-batch on one rank.
struct BlockActivations {
  std::int64_t kept = 0;          ///< for its backward, under recompute.policy none or selective
  std::int64_t whole = 0;         ///< without recomputation: what recomputing brings back
  std::int64_t backward = 0;      ///< on top, while its backward runs
  std::int64_t brought_back = 0;  ///< instead of all that, when what is kept waits in host memory
};

/// One micro-batch on one rank, whatever its stage.
struct Activations {
  std::array<BlockActivations, 3> blocks;  ///< by UnitKind: dense, moe, mtp
  std::int64_t boundary = 0;               ///< a block's input: all that full recomputation keeps
  std::int64_t ends = 0;                   ///< behind the last block
  std::int64_t logits = 0;
  std::int64_t inputs = 0;  ///< token ids and targets
};

Activations activations_of(const Problem& problem, const Candidate& candidate, std::int64_t vocab);

/// What the blocks of a pipeline rank keep for what it has in flight.
struct KeptActivations {
  std::int64_t bytes = 0;
  std::int64_t backward = 0;    ///< on top, in the backward of the block that needs most
  std::int64_t recomputed = 0;  ///< blocks whose forward runs again
};

/// Applies the recompute policy: none and selective keep `kept` of each block, full its input; `every` and `budget`
/// recompute some blocks. By closed form where all chunks keep as much; else each chunk weighs what it keeps.
KeptActivations kept_on(const StageUnits& units, const Activations& activations,
                        const job::Recompute& recompute);

/// Never above kept_on's bytes: one micro-batch in one of `chunks` chunks, on average.
std::int64_t least_kept(const UnitCounts& counts, const Activations& activations,
                        const job::Recompute& recompute, std::int64_t chunks);

}  // namespace ndmesh::plan
