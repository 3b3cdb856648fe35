#include "ndmesh/parallel/lay_out.h"

#include "ndmesh/parallel/fully_shard.h"
#include "ndmesh/parallel/recompute.h"
#include "ndmesh/parallel/replicate.h"
#include "ndmesh/parallel/tensor_parallel.h"
#include "ndmesh/plan/memory.h"

namespace ndmesh::parallel {
namespace {

using Policy = job::Recompute::Policy;

void recompute_blocks(nn::Decoder& model, const job::Job& job) {
  if (job.recompute.policy == Policy::none) {
    return;
  }
  const std::vector<bool> all_of_it = plan::recomputed_layers(job, model.spec());
  for (const auto& block : model.blocks()) {
    if (job.recompute.policy == Policy::selective) {
      recompute(*block, Recomputed::cheap);
    } else if (all_of_it[static_cast<std::size_t>(block->layer)]) {
      recompute(*block, Recomputed::all);
    }
  }
}

void offload_blocks(nn::Decoder& model) {
  for (const auto& block : model.blocks()) {
    offload_activations(*block);
  }
}

void shard_parts(nn::Decoder& model, comm::Communicator& communicator, const ShardOptions& options) {
  for (const auto& block : model.blocks()) {
    fully_shard(*block->self_attn, communicator, options);
    fully_shard(*block->mlp, communicator, options);
    fully_shard(*block, communicator, options);
  }
}

void shard_blocks(nn::Decoder& model, std::int64_t at_a_time, comm::Communicator& communicator,
                  const ShardOptions& options) {
  std::vector<torch::nn::Module*> unit;
  for (const auto& block : model.blocks()) {
    unit.push_back(block.get());
    if (static_cast<std::int64_t>(unit.size()) == at_a_time || block == model.blocks().back()) {
      fully_shard_together(unit, communicator, options);
      unit.clear();
    }
  }
}

std::shared_ptr<DataParallel> over_batch_ranks(nn::Decoder& model, const job::Job& job,
                                               const ModelLayout& layouts, comm::Communicator& communicator) {
  const bool parameters_go = job.shard.offload == job::Offload::all;
  if (communicator.mesh().size(mesh::shard_axes) == 1 && !parameters_go) {
    return replicate(model, communicator, mesh::loss_axes,
                     {.offload = job.shard.offload, .layouts = &layouts});
  }
  const ShardOptions options{.zero = job.shard.zero,
                             .reshard_after_forward = job.shard.reshard,
                             .prefetch = job.shard.prefetch,
                             .gathered_limit = job.shard.gathered_limit,
                             .offload = job.shard.offload};
  if (job.shard.unit_blocks == 0) {
    shard_parts(model, communicator, options);
  } else {
    shard_blocks(model, job.shard.unit_blocks, communicator, options);
  }
  ShardOptions of_root = options;
  of_root.layouts = &layouts;  // which names parameters as the root does
  return fully_shard(model, communicator, of_root);
}

}  // namespace

std::shared_ptr<DataParallel> lay_out(nn::Decoder& model, const job::Job& job, const ModelLayout& layouts,
                                      comm::Communicator& communicator) {
  tensor_parallel(model, communicator);
  recompute_blocks(model, job);
  if (job.offload_activations) {
    offload_blocks(model);
  }
  return over_batch_ranks(model, job, layouts, communicator);
}

}  // namespace ndmesh::parallel
