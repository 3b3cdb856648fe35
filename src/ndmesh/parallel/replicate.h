#pragma once

#include <torch/nn/module.h>

#include <memory>

#include "ndmesh/comm/world.h"
#include "ndmesh/job/job.h"
#include "ndmesh/parallel/data_parallel.h"
#include "ndmesh/parallel/model_layout.h"

namespace ndmesh::parallel {

struct ReplicateOptions {
  /// Gradients are summed in buckets of about this many bytes, each as soon as backward has filled it.
  std::int64_t bucket_bytes = 25'000'000;
  /// `optimizer`: in bfloat16 the float32 values, which only the optimizer reads, live in host memory. `all` needs parameters
  /// that come and go: fully_shard, on one rank too.
  job::Offload offload = job::Offload::none;
  /// Where the parameters lie, when strategies before this one have cut them; null: each is whole. Read while laying out.
  const ModelLayout* layouts = nullptr;
};

/// Replicated data parallelism: every rank of `axes` holds all of `module` and sees other samples.
///   splits       the batch
///   replicates   parameters, gradients, optimizer state
///   sends        an all-reduce of the gradients, started bucket by bucket during the last backward of a step
///   relieves     time: more samples at once
///   fails when   the model with its states does not fit one rank
/// With one rank it sends nothing and is how a single rank trains.
///
/// The buckets follow PyTorch's DistributedDataParallel (Li et al., 2020): filled in reverse order of
/// registration. Parameters may have memory (then rank 0's values are sent to all) or none yet
/// (nn/parameter.h: then they get some, to be filled by the caller through trainables()). In bfloat16 compute
/// reads a bfloat16 copy; values and gradients are float32. `module` and `communicator` must outlive what is
/// returned. RunError for what distinct_parameters refuses, and for offload all.
std::unique_ptr<DataParallel> replicate(torch::nn::Module& module, comm::Communicator& communicator,
                                        mesh::AxisSet axes, const ReplicateOptions& options = {});

}  // namespace ndmesh::parallel
