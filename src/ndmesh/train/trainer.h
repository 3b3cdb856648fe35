#pragma once

#include <functional>
#include <memory>

#include "ndmesh/comm/world.h"
#include "ndmesh/measure/memory_ledger.h"
#include "ndmesh/measure/record.h"
#include "ndmesh/measure/step_clock.h"
#include "ndmesh/measure/trace.h"
#include "ndmesh/parallel/parallel_model.h"
#include "ndmesh/train/batches.h"
#include "ndmesh/train/inputs.h"
#include "ndmesh/train/optimizer.h"

namespace ndmesh::train {

/// One rank's training: model, layout, optimizer and data, and one step over them. Every method is
/// collective: all ranks call the same ones in the same order. One rank's thread.
class Trainer {
 public:
  /// Sees the complete gradients of each step, before clipping, on every rank.
  using GradientObserver = std::function<void(std::int64_t step, parallel::ParallelModel& model)>;

  /// Builds the model, lays it out and fills it with stored or fresh values. `inputs` and `communicator` must
  /// outlive it.
  Trainer(const Inputs& inputs, comm::Communicator& communicator, GradientObserver observer = {});
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// The next step, over the samples of the job's files. RunError on every rank, before any value changes, when the
  /// gradient is not finite on one of them.
  measure::StepReport step();

  /// The next step over micro-batches of one's own, this rank's part of the global batch: one or more, as many on every
  /// rank. Targets may be nn::ignored: the loss is the sum of the token losses of all ranks over the number of all valid
  /// targets; where there is none at all it is 0, and nothing changes.
  measure::StepReport step(const std::vector<MicroBatch>& batches);

  /// Mean loss over train.eval_batches global batches of data.eval_files, always the same ones.
  double evaluate();

  /// From now on parts and collectives of this rank go to `trace` too, which outlives them; null: no more.
  void trace(measure::RankTrace* trace);

  /// Writes a Hugging Face folder, whole or not at all, by rank 0.
  void save_model(const std::filesystem::path& folder);

 private:
  struct Sums {
    double loss = 0;
    std::int64_t valid = 0;
  };
  void begin_step();
  measure::StepReport step_over(const std::vector<MicroBatch>& batches);
  Sums forward_backward(const std::vector<MicroBatch>& batches);
  double update(std::int64_t step, std::int64_t valid, double lr);
  std::int64_t count_valid(const std::vector<MicroBatch>& batches);
  double sum_over_loss_ranks(double value, const char* label);
  measure::StepReport report(const measure::StepTimes& times) const;
  measure::Bubble bubble(const at::Tensor& figures) const;
  /// The row `mine` of every rank, of shape [world, mine.size()].
  at::Tensor of_all_ranks(const std::vector<double>& mine) const;

  const Inputs& inputs_;
  comm::Communicator& communicator_;
  GradientObserver observer_;
  measure::MemoryLedger ledger_;
  measure::LedgerScope ledger_scope_;
  measure::StepClock clock_;
  measure::PipelineClock pipeline_clock_;
  std::unique_ptr<parallel::ParallelModel> model_;
  std::unique_ptr<Optimizer> optimizer_;
  BatchReader reader_;
  std::int64_t step_ = 0;
};

}  // namespace ndmesh::train
