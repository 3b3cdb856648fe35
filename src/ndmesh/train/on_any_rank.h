#pragma once

#include "ndmesh/comm/world.h"

namespace ndmesh::train {

/// Whether it is so on any rank: one decision for all. Collective over all ranks, which have all come here when it
/// returns; `label` names the call in verdicts.
bool on_any_rank(bool mine, comm::Communicator& communicator, const char* label);

}  // namespace ndmesh::train
