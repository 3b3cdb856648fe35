#pragma once

#include <memory>

#include "ndmesh/comm/world.h"
#include "ndmesh/job/job.h"
#include "ndmesh/nn/decoder.h"
#include "ndmesh/parallel/data_parallel.h"

namespace ndmesh::parallel {

/// Lays a fresh decoder (parameters without memory) out over this rank's mesh as the job says. The one place
/// where strategies are composed, in the order in which they are applied. Its parameters have memory, but no
/// values, afterwards.
std::shared_ptr<DataParallel> lay_out(nn::Decoder& model, const job::Job& job,
                                      comm::Communicator& communicator);

}  // namespace ndmesh::parallel
