#include "ndmesh/train/trainer.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <cmath>

#include "ndmesh/base/error.h"
#include "ndmesh/model/config.h"
#include "ndmesh/parallel/lay_out.h"
#include "ndmesh/train/gradient_norm.h"
#include "ndmesh/train/initial_values.h"
#include "ndmesh/train/lr_schedule.h"
#include "ndmesh/train/scalar_type.h"
#include "ndmesh/train/thread_count.h"

namespace ndmesh::train {
namespace {

using measure::Part;

BatchReader reader_of(const Inputs& inputs, const TokenFiles& files, bool shuffle,
                      const comm::Communicator& communicator) {
  const job::Job& job = inputs.job;
  const SampleOrder order(files.size(), job.batch.seq_len, shuffle, static_cast<std::uint64_t>(job.run.seed));
  return BatchReader(files, order, job.batch, communicator.mesh().size(mesh::batch_axes),
                     communicator.mesh().index_in(communicator.rank(), mesh::batch_axes));
}

}  // namespace

Trainer::Trainer(const Inputs& inputs, comm::Communicator& communicator, GradientObserver observer)
    : inputs_(inputs),
      communicator_(communicator),
      observer_(std::move(observer)),
      ledger_scope_(ledger_),
      model_(std::make_shared<nn::Decoder>(inputs.model, scalar_type(inputs.job.dtype))),
      reader_(reader_of(inputs, *inputs.tokens, inputs.job.data.shuffle, communicator)) {
  set_thread_count(static_cast<int>(job::threads_per_rank(inputs.job)));
  trace(nullptr);
  layout_ = parallel::lay_out(*model_, inputs.job, communicator_);
  if (inputs.weights != nullptr) {
    fill_from(*inputs.weights, layout_->trainables(), communicator_.rank());
  } else {
    fill_fresh(layout_->trainables(), inputs.model, static_cast<std::uint64_t>(inputs.job.run.seed),
               communicator_.rank());
  }
  layout_->parameters_changed();
  optimizer_ = std::make_unique<AdamW>(inputs.job.optimizer, layout_->trainables());
}

Trainer::~Trainer() {
  communicator_.observe({});
}

void Trainer::trace(measure::RankTrace* trace) {
  communicator_.observe([this, trace](const comm::CollectiveRecord& record) {
    clock_.add(record);
    if (trace != nullptr) {
      trace->add(record);
    }
  });
  clock_.observe(trace == nullptr
                     ? measure::StepClock::PartObserver()
                     : [trace](Part part, double begin, double end) { trace->add(part, begin, end); });
}

measure::StepReport Trainer::step() {
  ledger_.reset_peaks();
  clock_.begin();
  clock_.enter(Part::input);
  const MemoryScope scope(MemoryCategory::activations);
  const std::vector<MicroBatch> batches = reader_.read(step_);
  step_ += 1;

  clock_.enter(Part::compute);
  const Sums sums = forward_backward(batches);
  if (observer_) {
    clock_.enter(Part::other);
    observer_(step_, *layout_);
  }

  clock_.enter(Part::optimizer);
  const double loss = sum_over_loss_ranks(sums.loss, "loss");
  const double lr =
      learning_rate(inputs_.job.lr_schedule, inputs_.job.optimizer.lr, step_, inputs_.job.train.steps);
  const double norm = update(step_, sums.valid, lr);

  measure::StepReport result = report(clock_.end());
  result.loss = loss;
  result.grad_norm = norm;
  result.lr = lr;
  result.tokens = sums.valid;
  return result;
}

Trainer::Sums Trainer::forward_backward(const std::vector<MicroBatch>& batches) {
  const std::int64_t valid = count_valid(batches);
  const double scale = valid > 0 ? 1.0 / static_cast<double>(valid) : 0.0;
  double loss_sum = 0;
  for (std::size_t i = 0; i < batches.size(); ++i) {
    layout_->begin_micro_batch(i + 1 == batches.size());
    const at::Tensor loss =
        model_->loss(batches[i].ids_BS, batches[i].targets_BS, scale, inputs_.job.train.loss_chunk);
    loss_sum += loss.item<double>();
    loss.backward();
  }
  layout_->finish_backward();
  return {loss_sum, valid};
}

double Trainer::update(std::int64_t step, std::int64_t valid, double lr) {
  const double norm = global_gradient_norm(layout_->trainables(), communicator_);
  if (!std::isfinite(norm)) {
    throw RunError(
        fmt::format("step {}: the gradient is not finite ({}); no value was changed. A smaller optimizer.lr, "
                    "or precision.dtype=float32, may help",
                    step, describe_bad_gradient(layout_->trainables(), communicator_)));
  }
  if (valid > 0) {  // a batch without a single valid token changes nothing
    optimizer_->step(lr, clip_factor(norm, inputs_.job.train.clip));
  }
  layout_->parameters_changed();
  return norm;
}

std::int64_t Trainer::count_valid(const std::vector<MicroBatch>& batches) {
  const at::Tensor count = at::full({1}, valid_targets(batches), at::kLong);
  if (communicator_.mesh().size(mesh::loss_axes) > 1) {
    communicator_.group(mesh::loss_axes).all_reduce({count}, comm::Reduction::sum, "valid tokens");
  }
  return count.item<std::int64_t>();
}

double Trainer::sum_over_loss_ranks(double value, const char* label) {
  const at::Tensor sum = at::full({1}, value, at::kDouble);
  if (communicator_.mesh().size(mesh::loss_axes) > 1) {
    communicator_.group(mesh::loss_axes).all_reduce({sum}, comm::Reduction::sum, label);
  }
  return sum.item<double>();
}

measure::StepReport Trainer::report(const measure::StepTimes& times) const {
  // Each rank's figures, in a row: seconds, exposed seconds, total peak, then each category's peak.
  const MemoryBytes peaks = ledger_.peaks();
  std::vector<double> mine = {times.total, times[Part::exposed], static_cast<double>(ledger_.peak_total())};
  mine.insert(mine.end(), peaks.by_category.begin(), peaks.by_category.end());
  const auto columns = static_cast<std::int64_t>(mine.size());
  const at::Tensor row = at::tensor(mine, at::kDouble).view({1, columns});
  const at::Tensor all = at::empty({communicator_.world(), columns}, at::kDouble);
  communicator_.everyone().all_gather({all}, {row}, "step report");

  const auto column = [&](std::int64_t c) {
    const at::Tensor values = all.select(1, c).contiguous();
    const auto* begin = values.const_data_ptr<double>();
    return std::vector<double>(begin, begin + communicator_.world());
  };
  measure::StepReport report;
  report.step = step_;
  report.seconds = measure::spread_of(column(0)).max;
  report.exposed = measure::spread_of(column(1));
  report.memory_total = measure::spread_of(column(2));
  for (std::size_t c = 0; c < memory_category_count; ++c) {
    report.memory.by_category[c] = static_cast<std::int64_t>(
        all[report.memory_total.max_rank][static_cast<std::int64_t>(3 + c)].item<double>());
  }
  report.times = times;
  report.peak_rss_bytes = measure::peak_rss_bytes();
  report.flops_per_token = model::flops_per_token(inputs_.model, inputs_.job.batch.seq_len).total();
  return report;
}

double Trainer::evaluate() {
  const at::NoGradGuard no_grad;
  const MemoryScope scope(MemoryCategory::activations);
  const BatchReader reader = reader_of(inputs_, *inputs_.evaluation, /*shuffle=*/false, communicator_);
  double loss = 0;
  std::int64_t valid = 0;
  for (std::int64_t number = 0; number < inputs_.job.train.eval_batches; ++number) {
    const auto batches = reader.read(number);
    valid += count_valid(batches);
    for (const MicroBatch& batch : batches) {
      loss += model_->loss(batch.ids_BS, batch.targets_BS, 1.0, inputs_.job.train.loss_chunk).item<double>();
    }
  }
  return sum_over_loss_ranks(loss, "evaluation loss") / static_cast<double>(std::max<std::int64_t>(valid, 1));
}

void Trainer::save_model(const std::filesystem::path& folder) {
  const at::NoGradGuard no_grad;
  const MemoryScope scope(MemoryCategory::buffers);
  std::vector<parallel::Trainable>& trainables = layout_->trainables();
  const auto gather = [&](const std::string& name) {
    const auto wanted = std::find_if(trainables.begin(), trainables.end(),
                                     [&](const parallel::Trainable& t) { return t.name == name; });
    return layout_->gather_value(*wanted);
  };
  if (communicator_.rank() == 0) {
    write_model_folder(folder, inputs_.model, inputs_.job.dtype, gather);
  } else {
    for (const model::ParameterSpec& parameter : inputs_.model.parameters()) {
      gather(parameter.name);
    }
  }
  communicator_.everyone().barrier("model written");
}

}  // namespace ndmesh::train
