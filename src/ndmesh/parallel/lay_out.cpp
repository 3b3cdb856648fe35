#include "ndmesh/parallel/lay_out.h"

#include "ndmesh/parallel/fully_shard.h"
#include "ndmesh/parallel/replicate.h"

namespace ndmesh::parallel {

std::shared_ptr<DataParallel> lay_out(nn::Decoder& model, const job::Job& job,
                                      comm::Communicator& communicator) {
  if (communicator.mesh().size(mesh::shard_axes) == 1) {
    return replicate(model, communicator, mesh::loss_axes);
  }
  const ShardOptions options{job.shard.reshard, job.shard.prefetch};
  for (const auto& block : model.blocks()) {
    fully_shard(*block, communicator, options);
  }
  return fully_shard(model, communicator, options);
}

}  // namespace ndmesh::parallel
