#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

#include "ndmesh/comm/group.h"
#include "ndmesh/nn/decoder.h"
#include "ndmesh/parallel/data_parallel.h"
#include "ndmesh/schedule/schedule.h"

namespace ndmesh::parallel {

/// One forward's input on one rank.
struct MicroBatch {
  at::Tensor ids_BS;      ///< int64
  at::Tensor targets_BS;  ///< the token after each id: shifted on the whole sequence
};

/// A part of the model that a rank runs as one stage of the pipeline, and how it is laid out over the batch ranks.
struct Chunk {
  std::shared_ptr<nn::Decoder> model;
  std::shared_ptr<DataParallel> layout;
};

/// What a step makes of the micro-batches.
struct LossOptions {
  double scale = 1;          ///< of the sum of token losses
  std::int64_t chunk = 256;  ///< tokens whose logits exist at a time
};

/// Pipeline parallelism (GPipe: Huang et al., 2019; PipeDream-Flush: Narayanan et al., 2021).
///   splits       layers over the ranks of pp, and time: micro-batches follow one another
///   replicates   nothing; of a tied table both ends hold a copy
///   sends        the hidden states of each micro-batch to the next stage, their gradient back
///   relieves     memory of parameters and their states; little traffic, so links may be slow
///   fails when   micro-batches are few (ranks wait: the bubble), or stages uneven (all wait for the slowest)
///
/// Runs this rank's list of any schedule (schedule/schedule.h) action by action; which kind it is matters nowhere. With one
/// rank that is one micro-batch after the other. Messages have the shape of the micro-batch at hand. One rank's thread;
/// collective over `group`.
class Pipeline {
 public:
  /// `chunks` of this rank, in the order of the schedule's; `group`: the ranks of pp, null where there is one.
  Pipeline(std::vector<Chunk> chunks, comm::Group* group) : chunks_(std::move(chunks)), group_(group) {}

  const std::vector<Chunk>& chunks() const { return chunks_; }

  /// Told of each action of the list when it is done, with its seconds on the steady clock; what it waited for other ranks
  /// before it could begin is not among them. Not where gradients are off; an empty one is told nothing.
  using Observer = std::function<void(const schedule::Action& action, double begin, double end)>;
  void observe(Observer observer) { observer_ = std::move(observer); }

  /// The sum of what the last stage made of `batches`: on the rank that has it, 0 on the others. `schedule` has no defects
  /// and as many micro-batches as `batches`. Gradients of a chunk are complete after its `reduce`.
  double run(const schedule::Schedule& schedule, const std::vector<MicroBatch>& batches,
             const LossOptions& loss);

 private:
  std::vector<Chunk> chunks_;
  comm::Group* group_;
  Observer observer_;
};

}  // namespace ndmesh::parallel
