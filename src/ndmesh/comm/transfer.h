#pragma once

#include <cstdint>

#include "ndmesh/comm/shared_call.h"

/// What a member does in wait() once the peers that it needs have posted: everything is read straight from
/// their memory.
namespace ndmesh::comm {

/// Completes the outputs of member `slot`; all operations but all_reduce.
void move_to(SharedCall& call, int slot);

/// Pieces in which an all-reduce is worked on: whichever members wait take them, one by one.
std::int64_t chunk_count(const CallNote& note);

/// Takes chunks until none is left, and writes each to every member. True when this finished the last one.
bool reduce_chunks(SharedCall& call, int slot);

}  // namespace ndmesh::comm
