#pragma once

#include "ndmesh/plan/problem.h"
#include "ndmesh/plan/time/collectives.h"
#include "ndmesh/plan/time/layer_time.h"
#include "ndmesh/plan/time/rates.h"

namespace ndmesh::plan {

/// The groups that share and reduce parameters.
struct DataGroups {
  GroupCost shard;      ///< cp x dp_shard
  GroupCost replicate;  ///< dp_replicate
  GroupCost all;        ///< the loss ranks
  GroupCost expert;     ///< edp
};
DataGroups data_groups(const Candidate& candidate, const Collectives& collectives);

/// A collective and how much of it shows.
struct Shown {
  double exposed = 0;
  double hidden = 0;
};

/// What the data axes cost one pipeline rank.
struct DataTime {
  Shown gather_forward;   ///< zero 3, every micro-batch
  Shown gather_backward;  ///< zero 3 with reshard, every micro-batch
  Shown reduce_each;      ///< reductions at every micro-batch
  Shown reduce_last;      ///< after the last one's backward
  Shown replicate;        ///< sum over dp_replicate, once a step
  Shown gather_updated;   ///< zero 1, 2: updated parameters, once a step

  /// Seconds of exposed communication that one micro-batch adds to forward and to backward.
  double each_forward() const { return gather_forward.exposed; }
  double each_backward() const { return gather_backward.exposed + reduce_each.exposed; }
  double once() const { return reduce_last.exposed + replicate.exposed + gather_updated.exposed; }
};

/// `work`: all of the rank's layers and ends for one micro-batch. Where zero 3 keeps what a rank owns on the host, a gather
/// brings it first, and a reduction sends it there.
DataTime data_time(const Problem& problem, const Candidate& candidate, const DataGroups& groups,
                   const Collectives& collectives, const Work& work, const Rates& rates);

/// Elements that the rank's optimizer updates.
double updated_elements(const Candidate& candidate, const DataGroups& groups, const Work& work);

/// Seconds of the optimizer with clipping over `elements`, on the device or (offload) on the host with its
/// transfers; none where all that it reads and writes is there already.
double optimizer_seconds(const Candidate& candidate, const Rates& rates, double elements);

}  // namespace ndmesh::plan
