#pragma once

#include <functional>
#include <vector>

#include "ndmesh/plan/memory/stage_units.h"
#include "ndmesh/plan/stage_cut.h"

namespace ndmesh::plan {

/// Bytes that a pipeline rank needs which has these units.
using RankBytes = std::function<std::int64_t(const StageUnits& units)>;

/// Of all cuts into contiguous stages of at least one layer, one whose fullest pipeline rank needs fewest bytes; of those,
/// one whose costliest stage costs least. Exact where ranks have one chunk, by dynamic programming, which asks
/// nothing of `bytes`. With several chunks the bytes of a rank depend on stages that are far apart: then of the cuts whose
/// ranks deal their layers out evenly over their chunks, the first ones one more, each chunk with the model's share of MoE
/// layers; the even cut where that is no fuller. Several stages, and no more than layers.
std::vector<layout::Range> leanest_cut(const LayerCosts& costs, const UnitCounter& counter,
                                       const schedule::Shape& shape, const RankBytes& bytes);

}  // namespace ndmesh::plan
