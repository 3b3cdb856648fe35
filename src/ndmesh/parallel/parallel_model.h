#pragma once

#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "ndmesh/comm/world.h"
#include "ndmesh/job/job.h"
#include "ndmesh/parallel/model_layout.h"
#include "ndmesh/parallel/partial_gradients.h"
#include "ndmesh/parallel/pipeline.h"

namespace ndmesh::parallel {

/// A decoder over all ranks of the mesh, as one rank sees it: the chunks of layers that this rank runs, each laid out over
/// the batch ranks (lay_out.h), and what leads micro-batches through all of them (pipeline.h). A step is forward_backward,
/// then the optimizer over trainables(), then parameters_changed(). One rank's thread; every method that is not const is
/// collective over all ranks.
class ParallelModel {
 public:
  /// Fresh: parameters have memory and no values. `dtype` is that of compute. `communicator` must outlive it.
  ParallelModel(const model::ModelSpec& model, const job::Job& job, at::ScalarType dtype,
                comm::Communicator& communicator);

  const std::vector<Chunk>& chunks() const { return pipeline_.chunks(); }
  /// Of the last step.
  const schedule::Schedule& schedule() const { return schedule_; }
  /// Pipeline::observe.
  void observe(Pipeline::Observer observer) { pipeline_.observe(std::move(observer)); }

  /// What this rank owns of its chunks' parameters, chunk by chunk, and of those, those that are trained.
  const std::vector<OwnedParameter>& parameters() const { return parameters_; }
  std::vector<Trainable>& trainables() { return trainables_; }

  /// Every micro-batch forward and backward as the job's schedule says; gradients are complete afterwards. The sum of the
  /// losses on the ranks of the last stage, 0 on all others. RequestError when the schedule cannot deal so many
  /// micro-batches out.
  double forward_backward(const std::vector<MicroBatch>& batches, const LossOptions& loss);
  /// Forward only.
  double forward(const std::vector<MicroBatch>& batches, const LossOptions& loss);
  /// The optimizer has changed values.
  void parameters_changed();

  /// Every parameter of the model, on whatever rank, in the order of ModelSpec::parameters(); and those that are trained.
  const std::vector<std::string>& names() const { return names_; }
  const std::vector<std::string>& trained_names() const { return trained_names_; }
  /// The full value, or full gradient (between forward_backward and the optimizer), of one of them, on every rank.
  at::Tensor gather_value(const std::string& name);
  at::Tensor gather_gradient(const std::string& name);

 private:
  /// How the job cuts the model.
  struct Cut {
    std::vector<layout::Range> stages;
    ModelLayout layouts;
  };
  static Cut cut_of(const model::ModelSpec& model, const job::Job& job, const mesh::Mesh& mesh);
  static std::vector<Chunk> make_chunks(const model::ModelSpec& model, const job::Job& job,
                                        at::ScalarType dtype, const Cut& cut,
                                        comm::Communicator& communicator);
  ParallelModel(const model::ModelSpec& model, const job::Job& job, at::ScalarType dtype, const Cut& cut,
                comm::Communicator& communicator);

  /// Where a parameter of the model is.
  struct Place {
    layout::Shape shape;
    at::ScalarType dtype = at::kFloat;  ///< of its values, and of the gradients of what is trained
    std::int64_t stage = 0;             ///< a tied table: the first; the last has a copy
  };

  void take_over(std::int64_t chunk);
  at::Tensor gather(const std::string& name, const char* what,
                    const std::function<at::Tensor(DataParallel&)>& on_stage);

  job::Job job_;
  schedule::Shape shape_;        ///< of the last step
  bool stays_gathered_;          ///< parameters, during all passes of a chunk
  schedule::Schedule schedule_;  ///< of that; empty before the first
  comm::Group* stages_;          ///< ranks of pp; null where there is one
  Pipeline pipeline_;
  std::vector<OwnedParameter> parameters_;
  std::vector<Trainable> trainables_;
  std::vector<std::string> names_, trained_names_;
  std::unordered_map<std::string, Place> places_;
  PartialGradients partial_gradients_;
};

}  // namespace ndmesh::parallel
