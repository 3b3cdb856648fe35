#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>

#include "ndmesh/comm/world.h"
#include "ndmesh/parallel/data_parallel.h"

namespace ndmesh::parallel {

struct ShardOptions {
  /// Parameters go after a unit's forward and are gathered again for its backward; false keeps them until the step's last
  /// backward: more memory, fewer gathers. The outermost unit, and the one whose backward comes first, always keep theirs
  /// until their backward.
  bool reshard_after_forward = true;
  /// Units gathered ahead of the one that computes.
  std::int64_t prefetch = 1;
};

/// Fully sharded data parallelism (ZeRO-3: Rajbhandari et al., 2020; per-parameter sharding as in PyTorch FSDP2).
///   splits       the batch; and parameters, gradients and optimizer state over the shard ranks (cp x dp_shard),
///                each parameter along dim 0
///   replicates   nothing over the shard ranks; everything over dp_replicate (hybrid)
///   sends        an all-gather of each unit's parameters before its forward and before its backward, a
///                reduce-scatter of its gradients in backward, and with dp_replicate an all-reduce of the parts
///   relieves     memory: 16 bytes a parameter become 16 / n
///   fails when   units are so small, or links so slow, that gathers cannot hide behind compute
///
/// Call it bottom-up: once for each unit (a block, say), then for the root, which takes what is left and all
/// units below it; then build the optimizer from the root's trainables. `module` must also be an nn::Unit and
/// call enter and leave in its forward. Its parameter tensors stay the same objects, but hold memory only
/// between enter and leave and in backward; reading one outside throws. Parameters may have memory (rank 0's
/// values are sent to all) or none yet.
///
/// Parameters are gathered in their own dtype; the parts that ranks own, and reductions, are float32 (float64
/// for float64). The handle of a unit below the root is only needed when it is used alone. `module` and
/// `communicator` must outlive the handle. RunError: `module` is no nn::Unit or is laid out already, an
/// optimizer was already built for a unit below, or distinct_parameters refuses.
std::shared_ptr<DataParallel> fully_shard(torch::nn::Module& module, comm::Communicator& communicator,
                                          const ShardOptions& options = {});

}  // namespace ndmesh::parallel
