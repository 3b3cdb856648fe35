#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "ndmesh/comm/world.h"
#include "ndmesh/job/job.h"
#include "ndmesh/parallel/data_parallel.h"
#include "ndmesh/parallel/model_layout.h"

namespace ndmesh::parallel {

struct ShardOptions {
  /// What the shard ranks share out (ZeRO stage): 1 optimizer state; 2 gradients too; 3 parameters too.
  std::int64_t zero = 3;
  /// Zero 3: parameters go after a unit's forward and are gathered again for its backward; false keeps them until the
  /// step's last backward: more memory, fewer gathers. The outermost unit, and the one whose backward comes first, always
  /// keep theirs until their backward.
  bool reshard_after_forward = true;
  /// Units gathered ahead of the one that computes.
  std::int64_t prefetch = 1;
  /// Bytes of gathered parameters beyond which no unit is gathered ahead; 0: no limit.
  std::int64_t gathered_limit = 0;
  /// What lives in host memory (nn/host_memory.h). `optimizer`: zero 1 and 2 in bfloat16, the float32 values, which only
  /// the optimizer reads (its own state is its own: train::StateOptions::on_host). `all`, zero 3: all that this rank owns,
  /// values and gradients; units are gathered from there and their reduced gradients added up there.
  job::Offload offload = job::Offload::none;
  /// Where the parameters lie, when strategies before this one have cut them; null: each is cut by rows, over the shard
  /// ranks alone. Read while laying out.
  const ModelLayout* layouts = nullptr;
};

/// Sharded data parallelism (ZeRO 1 to 3: Rajbhandari et al., 2020; per-parameter sharding as in PyTorch FSDP2).
///   splits       the batch; and optimizer state, gradients and parameters, as far as `zero` says, over the shard ranks
///                (cp x dp_shard), each parameter along dim 0
///   replicates   what `zero` does not share out; everything over dp_replicate (hybrid)
///   sends        zero 3: an all-gather of each unit's parameters before its forward and before its backward; zero 1 and
///                2: one before the first forward of a step. A reduce-scatter of its gradients in backward (zero 1: in the
///                step's last), and with dp_replicate an all-reduce of the parts
///   relieves     memory: 16 bytes a parameter become 16 / n (zero 2: 4 + 12 / n; zero 1: 8 + 8 / n)
///   fails when   units are so small, or links so slow, that gathers cannot hide behind compute
///
/// Call it bottom-up: once for each unit (a block, say), then for the root, which takes what is left and all
/// units below it; then build the optimizer from the root's trainables. The root's options count for all. `module` must
/// also be an nn::Unit whose forward is one pass. Its parameter tensors stay the same objects, but under zero 3 hold
/// memory only within a pass and in backward; reading one outside throws. Parameters may have memory (rank 0's
/// values are sent to all) or none yet.
///
/// Parameters are gathered in their own dtype; the parts that ranks own, and reductions, are float32 (float64
/// for float64). The handle of a unit below the root is only needed when it is used alone. `module` and
/// `communicator` must outlive the handle. RunError: `module` is no nn::Unit or is laid out already, an
/// optimizer was already built for a unit below, units below have another `zero` or `offload`, offload is all below zero 3, or
/// distinct_parameters refuses.
std::shared_ptr<DataParallel> fully_shard(torch::nn::Module& module, comm::Communicator& communicator,
                                          const ShardOptions& options = {});

/// The same for modules that run one behind another, as one unit of a root that is sharded later: fewer, larger
/// gathers. RunError as above, or when `modules` is empty.
void fully_shard_together(const std::vector<torch::nn::Module*>& modules, comm::Communicator& communicator,
                          const ShardOptions& options = {});

}  // namespace ndmesh::parallel
