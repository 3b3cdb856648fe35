#pragma once

#include <memory>

#include "ndmesh/comm/world.h"
#include "ndmesh/job/job.h"
#include "ndmesh/nn/decoder.h"
#include "ndmesh/parallel/data_parallel.h"
#include "ndmesh/parallel/model_layout.h"

namespace ndmesh::parallel {

/// Lays a fresh decoder (parameters without memory; of layout::tensor_part) out over this rank's mesh as the job
/// says. The one place where strategies are composed, in the order in which they are applied. Its parameters
/// have memory, but no values, afterwards. `layouts` say how tp has cut them; read while laying out. Gradients that
/// are partial sums beyond the loss ranks stay so: partial_gradients.h.
std::shared_ptr<DataParallel> lay_out(nn::Decoder& model, const job::Job& job, const ModelLayout& layouts,
                                      comm::Communicator& communicator);

}  // namespace ndmesh::parallel
