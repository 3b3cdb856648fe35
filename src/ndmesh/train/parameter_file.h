#pragma once

#include <filesystem>

#include "ndmesh/comm/world.h"
#include "ndmesh/parallel/data_parallel.h"

namespace ndmesh::train {

/// Saving and loading the parameters of a module of one's own, however it is laid out: one safetensors file that holds
/// each parameter whole, once, under the name by which it is registered, in the dtype in which it is trained. So a file
/// written on one mesh is read on any other. Buffers and optimizer state are not in it.
///
/// Both are collective: all ranks of `communicator` call them, between steps (before the first, or after
/// parameters_changed()), on their own threads. Both throw on every rank or on none, and a run may go on after that.
/// Peers wait by the limit of the phase: where the disk may take minutes, communicator.enter_phase(Phase::save, ...) first.

/// Rank 0 writes, whole or not at all: an older file stays until the new one is complete and synced. The file is there
/// when any rank returns. RunError when it cannot be written.
void save_parameters(const std::filesystem::path& file, parallel::DataParallel& layout,
                     comm::Communicator& communicator);

/// Each rank reads what it owns, converted to the dtype in which it is trained; then layout.parameters_changed().
/// RequestError, before any value changes, for a file that cannot be read, a parameter that is missing in it, surplus,
/// of another shape or of no floating dtype: all of it at once.
void load_parameters(const std::filesystem::path& file, parallel::DataParallel& layout,
                     comm::Communicator& communicator);

}  // namespace ndmesh::train
