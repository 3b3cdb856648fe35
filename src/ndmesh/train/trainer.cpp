#include "ndmesh/train/trainer.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <cmath>

#include "ndmesh/base/error.h"
#include "ndmesh/model/config.h"
#include "ndmesh/nn/host_memory.h"
#include "ndmesh/train/gradient_norm.h"
#include "ndmesh/train/initial_values.h"
#include "ndmesh/train/lr_schedule.h"
#include "ndmesh/train/on_any_rank.h"
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
      reader_(reader_of(inputs, *inputs.tokens, inputs.job.data.shuffle, communicator)) {
  // Before the first tensor: a thread's first use of libtorch takes the process's number of threads, which other ranks
  // change here for a moment, and writes it back.
  set_thread_count(static_cast<int>(job::threads_per_rank(inputs.job)));
  model_ = std::make_unique<parallel::ParallelModel>(inputs.model, inputs.job, scalar_type(inputs.job.dtype),
                                                     communicator);
  trace(nullptr);
  if (inputs.weights != nullptr) {
    fill_from(*inputs.weights, model_->parameters(), communicator_.rank());
  } else {
    fill_fresh(model_->parameters(), inputs.model, static_cast<std::uint64_t>(inputs.job.run.seed),
               communicator_.rank());
  }
  model_->parameters_changed();
  optimizer_ = make_optimizer(inputs.job, inputs.model, model_->trainables(), communicator_);
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
  model_->observe([this, trace](const schedule::Action& action, double begin, double end) {
    pipeline_clock_.add(action, begin, end);
    if (trace != nullptr) {
      trace->add(action, begin, end);
    }
  });
  clock_.observe(trace == nullptr
                     ? measure::StepClock::PartObserver()
                     : [trace](Part part, double begin, double end) { trace->add(part, begin, end); });
}

measure::StepReport Trainer::step() {
  begin_step();
  const MemoryScope scope(MemoryCategory::activations);
  return step_over(reader_.read(step_));
}

measure::StepReport Trainer::step(const std::vector<MicroBatch>& batches) {
  begin_step();
  const MemoryScope scope(MemoryCategory::activations);
  return step_over(batches);
}

void Trainer::begin_step() {
  ledger_.reset_peaks();
  nn::take_host_traffic();  // of what was done between steps
  clock_.begin();
  clock_.enter(Part::input);
}

measure::StepReport Trainer::step_over(const std::vector<MicroBatch>& batches) {
  step_ += 1;
  clock_.enter(Part::compute);
  const Sums sums = forward_backward(batches);
  if (observer_) {
    clock_.enter(Part::other);
    observer_(step_, *model_);
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
  pipeline_clock_.begin(static_cast<std::int64_t>(model_->chunks().size()));
  return {model_->forward_backward(batches, {scale, inputs_.job.train.loss_chunk}), valid};
}

double Trainer::update(std::int64_t step, std::int64_t valid, double lr) {
  const double norm = global_gradient_norm(model_->trainables(), communicator_);
  if (on_any_rank(!std::isfinite(norm), communicator_, "gradient is finite")) {
    throw RunError(
        fmt::format("step {}: the gradient is not finite ({}); no value was changed. A smaller optimizer.lr, "
                    "or precision.dtype=float32, may help",
                    step, describe_bad_gradient(model_->trainables(), communicator_)));
  }
  if (valid > 0) {  // a batch without a single valid token changes nothing
    optimizer_->step(lr, clip_factor(norm, inputs_.job.train.clip));
  }
  model_->parameters_changed();
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
  const mesh::AxisSet axes = mesh::loss_axes.with(mesh::Axis::pp);  // the last stage has it
  if (communicator_.mesh().size(axes) > 1) {
    communicator_.group(axes).all_reduce({sum}, comm::Reduction::sum, label);
  }
  return sum.item<double>();
}

namespace {

/// Columns of a table that has a row for each rank: single figures, then three runs of bytes by category.
enum Column : std::int64_t { seconds, exposed, total_peak, host_peak, to_host, to_device, peaks };
constexpr auto width = static_cast<std::int64_t>(memory_category_count);
constexpr std::int64_t at_peak = peaks + width;
constexpr std::int64_t host_peaks = at_peak + width;
constexpr std::int64_t pipeline_figures = host_peaks + width;

class Figures {
 public:
  explicit Figures(const at::Tensor& table) : table_(table) {}

  measure::Spread spread(std::int64_t column) const {
    const at::Tensor values = table_.select(1, column).contiguous();
    const auto* begin = values.const_data_ptr<double>();
    return measure::spread_of(std::vector<double>(begin, begin + values.size(0)));
  }
  std::int64_t bytes(std::int64_t rank, std::int64_t column) const {
    return static_cast<std::int64_t>(table_[rank][column].item<double>());
  }
  MemoryBytes by_category(std::int64_t rank, std::int64_t first) const {
    MemoryBytes result;
    for (std::size_t c = 0; c < memory_category_count; ++c) {
      result.by_category[c] = bytes(rank, first + static_cast<std::int64_t>(c));
    }
    return result;
  }

 private:
  at::Tensor table_;
};

}  // namespace

measure::StepReport Trainer::report(const measure::StepTimes& times) const {
  const nn::HostTraffic traffic = nn::take_host_traffic();
  std::vector<double> mine = {times.total,
                              times[Part::exposed],
                              static_cast<double>(ledger_.peak_total()),
                              static_cast<double>(ledger_.host_peak_total()),
                              static_cast<double>(traffic.to_host),
                              static_cast<double>(traffic.to_device)};
  for (const MemoryBytes& bytes : {ledger_.peaks(), ledger_.at_peak(), ledger_.host_peaks()}) {
    mine.insert(mine.end(), bytes.by_category.begin(), bytes.by_category.end());
  }
  const std::vector<double> pipeline = pipeline_clock_.figures();
  mine.insert(mine.end(), pipeline.begin(), pipeline.end());
  const at::Tensor table = of_all_ranks(mine);
  const Figures all(table);
  measure::StepReport report;
  report.step = step_;
  report.seconds = all.spread(seconds).max;
  report.exposed = all.spread(exposed);
  report.memory_total = all.spread(total_peak);
  const std::int64_t fullest = report.memory_total.max_rank;
  report.memory = all.by_category(fullest, peaks);
  report.memory_at_peak = all.by_category(fullest, at_peak);
  for (std::size_t c = 0; c < memory_category_count; ++c) {
    report.memory_peaks[c] = all.spread(peaks + static_cast<std::int64_t>(c));
  }
  const std::int64_t host = all.spread(host_peak).max_rank;
  report.host = {all.by_category(host, host_peaks), all.bytes(host, host_peak), all.bytes(host, to_host),
                 all.bytes(host, to_device)};
  if (communicator_.mesh().size(mesh::Axis::pp) > 1) {
    report.bubble = bubble(table.slice(1, pipeline_figures));
  }
  report.times = times;
  report.peak_rss_bytes = measure::peak_rss_bytes();
  report.flops_per_token = model::flops_per_token(inputs_.model, inputs_.job.batch.seq_len).total();
  return report;
}

measure::Bubble Trainer::bubble(const at::Tensor& figures) const {
  std::vector<std::vector<double>> by_rank;
  std::vector<std::int64_t> pipeline_rank;
  for (std::int64_t rank = 0; rank < communicator_.world(); ++rank) {
    const at::Tensor row = figures.select(0, rank).contiguous();
    by_rank.emplace_back(row.const_data_ptr<double>(), row.const_data_ptr<double>() + row.numel());
    pipeline_rank.push_back(communicator_.mesh().coordinate(rank, mesh::Axis::pp));
  }
  return measure::bubble_of(model_->schedule(), by_rank, pipeline_rank);
}

at::Tensor Trainer::of_all_ranks(const std::vector<double>& mine) const {
  const auto columns = static_cast<std::int64_t>(mine.size());
  const at::Tensor row = at::tensor(mine, at::kDouble).view({1, columns});
  at::Tensor all = at::empty({communicator_.world(), columns}, at::kDouble);
  communicator_.everyone().all_gather({all}, {row}, "step report");
  return all;
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
    loss += model_->forward(batches, {1.0, inputs_.job.train.loss_chunk});
  }
  return sum_over_loss_ranks(loss, "evaluation loss") / static_cast<double>(std::max<std::int64_t>(valid, 1));
}

void Trainer::save_model(const std::filesystem::path& folder) {
  const at::NoGradGuard no_grad;
  const MemoryScope scope(MemoryCategory::buffers);
  if (communicator_.rank() == 0) {
    write_model_folder(folder, inputs_.model, inputs_.job.dtype,
                       [&](const std::string& name) { return model_->gather_value(name); });
  } else {
    for (const std::string& name : model_->names()) {
      model_->gather_value(name);
    }
  }
  communicator_.everyone().barrier("model written");
}

}  // namespace ndmesh::train
