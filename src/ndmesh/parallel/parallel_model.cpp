#include "ndmesh/parallel/parallel_model.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "ndmesh/job/frozen.h"
#include "ndmesh/layout/model_part.h"
#include "ndmesh/nn/kernels.h"
#include "ndmesh/parallel/lay_out.h"
#include "ndmesh/plan/stage_cut.h"

namespace ndmesh::parallel {
namespace {

using mesh::Axis;

comm::Group* ranks_of_pipeline(comm::Communicator& communicator) {
  return communicator.mesh().size(Axis::pp) > 1 ? &communicator.group({Axis::pp}) : nullptr;
}

void freeze(nn::Decoder& model, const std::vector<std::string>& patterns) {
  for (auto& parameter : model.named_parameters()) {
    if (job::is_frozen(patterns, parameter.key())) {
      parameter.value().set_requires_grad(false);
    }
  }
}

/// `part` with the layers of `stage`.
layout::ModelPart part_of_stage(layout::ModelPart part, const std::vector<layout::Range>& stages,
                                std::int64_t stage) {
  part.layers = stages[static_cast<std::size_t>(stage)];
  part.embeds = stage == 0;
  part.has_head = stage + 1 == static_cast<std::int64_t>(stages.size());
  return part;
}

struct Named {
  const std::string& name;
  bool operator()(const OwnedParameter& parameter) const { return parameter.name == name; }
};

/// The gradient's dtype, and that of values that are trained; frozen ones are as compute reads them.
at::ScalarType dtype_of_values(bool trained, at::ScalarType compute) {
  return trained ? nn::wide_dtype(compute) : compute;
}

}  // namespace

ParallelModel::Cut ParallelModel::cut_of(const model::ModelSpec& model, const job::Job& job,
                                         const mesh::Mesh& mesh) {
  Cut cut;
  cut.stages = plan::stage_cut(job, model);
  cut.layouts =
      model_layout(model, mesh, {.stages = cut.stages, .sequence_parallel = job.tensor.sequence_parallel});
  return cut;
}

std::vector<Chunk> ParallelModel::make_chunks(const model::ModelSpec& model, const job::Job& job,
                                              at::ScalarType dtype, const Cut& cut,
                                              comm::Communicator& communicator) {
  const std::int64_t rank = communicator.rank();
  const layout::ModelPart part =
      layout::tensor_part(model, communicator.mesh(), rank, job.tensor.sequence_parallel);
  const schedule::Shape shape = job::pipeline_shape(job);
  std::vector<Chunk> chunks;
  for (std::int64_t chunk = 0; chunk < shape.chunks; ++chunk) {
    const std::int64_t stage = shape.stage_of(communicator.mesh().coordinate(rank, Axis::pp), chunk);
    auto decoder = std::make_shared<nn::Decoder>(model, part_of_stage(part, cut.stages, stage), dtype);
    freeze(*decoder, job.train.frozen);
    auto layout = lay_out(*decoder, job, cut.layouts, communicator);
    chunks.push_back({std::move(decoder), std::move(layout)});
  }
  return chunks;
}

ParallelModel::ParallelModel(const model::ModelSpec& model, const job::Job& job, at::ScalarType dtype,
                             comm::Communicator& communicator)
    : ParallelModel(model, job, dtype, cut_of(model, job, communicator.mesh()), communicator) {}

ParallelModel::ParallelModel(const model::ModelSpec& model, const job::Job& job, at::ScalarType dtype,
                             const Cut& cut, comm::Communicator& communicator)
    : job_(job),
      shape_(job::pipeline_shape(job)),
      stays_gathered_(job.shard.zero == 3 && !job.shard.reshard),
      stages_(ranks_of_pipeline(communicator)),
      pipeline_(make_chunks(model, job, dtype, cut, communicator), stages_) {
  for (const model::ParameterSpec& spec : model.parameters()) {
    const std::string& name = spec.name;
    const bool trained = !job::is_frozen(job.train.frozen, name);
    names_.push_back(name);
    if (trained) {
      trained_names_.push_back(name);
    }
    places_[name] = {spec.shape, dtype_of_values(trained, dtype), cut.layouts.at(name).first_stage};
  }
  for (std::size_t chunk = 0; chunk < chunks().size(); ++chunk) {
    take_over(static_cast<std::int64_t>(chunk));
  }
  partial_gradients_ = PartialGradients(cut.layouts, shape_, trainables_, communicator);
}

/// What this rank owns of a chunk.
void ParallelModel::take_over(std::int64_t chunk) {
  DataParallel& layout = *chunks()[static_cast<std::size_t>(chunk)].layout;
  const std::int64_t stage = shape_.stage_of(stages_ != nullptr ? stages_->rank() : 0, chunk);
  const auto& owned = layout.parameters();
  parameters_.insert(parameters_.end(), owned.begin(), owned.end());
  for (const Trainable& trainable : layout.trainables()) {
    trainables_.push_back(trainable);
    trainables_.back().counted = places_.at(trainable.name).stage == stage;
  }
}

double ParallelModel::forward_backward(const std::vector<MicroBatch>& batches, const LossOptions& loss) {
  shape_.micro_batches = static_cast<std::int64_t>(batches.size());
  if (schedule_.ranks.empty() || schedule_.shape != shape_) {
    schedule_ = schedule::with_sharding(job::pipeline_schedule(job_, shape_), stays_gathered_);
  }
  const double sum = pipeline_.run(schedule_, batches, loss);
  partial_gradients_.sum();
  return sum;
}

double ParallelModel::forward(const std::vector<MicroBatch>& batches, const LossOptions& loss) {
  const at::NoGradGuard no_grad;
  schedule::Shape shape = shape_;
  shape.micro_batches = static_cast<std::int64_t>(batches.size());
  return pipeline_.run(schedule::make_forward_schedule(shape), batches, loss);
}

void ParallelModel::parameters_changed() {
  for (const Chunk& chunk : chunks()) {
    chunk.layout->parameters_changed();
  }
}

at::Tensor ParallelModel::gather_value(const std::string& name) {
  return gather(name, "value of ", [&](DataParallel& layout) {
    const auto& list = layout.parameters();
    return layout.gather_value(*std::find_if(list.begin(), list.end(), Named{name}));
  });
}

at::Tensor ParallelModel::gather_gradient(const std::string& name) {
  return gather(name, "gradient of ", [&](DataParallel& layout) {
    const auto& list = layout.trainables();
    return layout.gather_gradient(*std::find_if(list.begin(), list.end(), Named{name}));
  });
}

/// By the ranks of its (first) stage, which send it to those of the others.
at::Tensor ParallelModel::gather(const std::string& name, const char* what,
                                 const std::function<at::Tensor(DataParallel&)>& on_stage) {
  const Place& place = places_.at(name);
  const auto holder = static_cast<int>(shape_.rank_of(place.stage));
  DataParallel& layout = *chunks()[static_cast<std::size_t>(shape_.chunk_of(place.stage))].layout;
  if (stages_ == nullptr) {
    return on_stage(layout);
  }
  const at::Tensor full = stages_->rank() == holder
                              ? on_stage(layout).contiguous()
                              : at::empty(place.shape, at::TensorOptions().dtype(place.dtype));
  stages_->broadcast({full}, holder, what + name);
  return full;
}

}  // namespace ndmesh::parallel
