#pragma once

#include <vector>

#include "ndmesh/job/job.h"
#include "ndmesh/parallel/pipeline.h"
#include "ndmesh/train/data.h"

namespace ndmesh::train {

using parallel::MicroBatch;

/// Which samples a batch rank sees: of global batch `number` (from 0), which holds samples number * global
/// ... in order, batch rank r of n takes the r-th n-th, cut into micro-batches in order. Depends on the mesh
/// in no other way.
class BatchReader {
 public:
  /// `files` must outlive it; `order` says where samples lie.
  BatchReader(const TokenFiles& files, SampleOrder order, const job::BatchSection& batch,
              std::int64_t batch_ranks, std::int64_t batch_rank);

  std::vector<MicroBatch> read(std::int64_t number) const;

 private:
  MicroBatch micro_batch(std::int64_t first_sample) const;

  const TokenFiles& files_;
  SampleOrder order_;
  job::BatchSection batch_;
  std::int64_t samples_;  ///< of one global batch, on this batch rank
  std::int64_t batch_rank_;
};

/// Targets that count: not nn::ignored.
std::int64_t valid_targets(const std::vector<MicroBatch>& batches);

}  // namespace ndmesh::train
