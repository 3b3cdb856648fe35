#include "ndmesh/train/run.h"

#include <fmt/format.h>

#include <fstream>

#include "ndmesh/base/error.h"
#include "ndmesh/measure/record.h"
#include "ndmesh/plan/memory.h"
#include "ndmesh/train/gradient_file.h"
#include "ndmesh/train/on_any_rank.h"
#include "ndmesh/train/trainer.h"

namespace ndmesh::train {
namespace {

/// What only rank 0 does: tell people and the record.
class Narrator {
 public:
  Narrator(const Inputs& inputs, const RunOptions& options, const measure::RankMemory& predicted)
      : inputs_(inputs), options_(options), record_(options.folder / "record.jsonl") {
    write_job();
    record_.write(measure::identity(inputs.job, inputs.model, predicted));
  }

  void step(const measure::StepReport& report) {
    record_.write(measure::to_json(report));
    say(measure::step_line(report, inputs_.job.train.steps));
  }
  void evaluation(std::int64_t step, double loss) {
    record_.write({{"kind", "evaluation"}, {"step", step}, {"loss", loss}});
    say(fmt::format("step {:>6}        evaluation loss {:8.4f}", step, loss));
  }
  void saved(std::int64_t step, const std::filesystem::path& folder) {
    record_.write({{"kind", "saved"}, {"step", step}, {"folder", folder.filename().string()}});
    say(fmt::format("step {:>6}        model written to {}", step, folder.string()));
  }

 private:
  void write_job() const {
    const std::filesystem::path file = options_.folder / "job.yaml";
    if (!(std::ofstream(file) << job::resolved_yaml(inputs_.job) << std::flush)) {
      throw RunError("cannot write " + file.string());
    }
  }
  void say(const std::string& line) {
    if (options_.say) {
      options_.say(line);
    }
  }

  const Inputs& inputs_;
  const RunOptions& options_;
  measure::Record record_;
};

/// All ranks must agree on the step after which they stop.
bool agreed_to_stop(comm::Communicator& communicator, const std::atomic<bool>* stop) {
  return on_any_rank(stop != nullptr && stop->load(), communicator, "stop");
}

bool is_due(std::int64_t step, std::int64_t every) {
  return every > 0 && step % every == 0;
}

/// The training loop of one rank.
RunSummary train_rank(const Inputs& inputs, const RunOptions& options, Narrator* narrator,
                      measure::Trace& trace, comm::Communicator& communicator) {
  const job::Job& job = inputs.job;
  communicator.enter_phase(comm::Phase::setup, "set-up");
  Trainer trainer(inputs, communicator, gradient_writer(job.debug.gradients, communicator.rank()));

  RunSummary summary;
  while (summary.steps < job.train.steps && !summary.interrupted) {
    const std::int64_t step = ++summary.steps;
    communicator.enter_phase(step == 1 ? comm::Phase::first_step : comm::Phase::step,
                             fmt::format("step {}", step));
    trainer.trace(step <= job.debug.trace ? &trace.of(communicator.rank()) : nullptr);
    const measure::StepReport report = trainer.step();
    summary.last_loss = report.loss;
    summary.counted = report.memory;
    summary.counted_host = report.host;
    if (narrator != nullptr) {
      narrator->step(report);
    }
    if (inputs.evaluation != nullptr && is_due(step, job.train.eval_every)) {
      const double loss = trainer.evaluate();
      if (narrator != nullptr) {
        narrator->evaluation(step, loss);
      }
    }
    summary.interrupted = agreed_to_stop(communicator, options.stop);
    if (summary.interrupted || step == job.train.steps || is_due(step, job.checkpoint.every)) {
      communicator.enter_phase(comm::Phase::save, fmt::format("writing the model after step {}", step));
      trainer.save_model(options.folder / "model");
      if (narrator != nullptr) {
        narrator->saved(step, options.folder / "model");
      }
    }
  }
  return summary;
}

}  // namespace

comm::Limits limits_of(const job::Job& job) {
  const auto milliseconds = [](double seconds) {
    return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
  };
  return {milliseconds(job.run.setup_limit), milliseconds(job.run.first_step_limit),
          milliseconds(job.run.step_limit), milliseconds(job.run.save_limit)};
}

RunSummary run_training(const Inputs& inputs, const RunOptions& options) {
  const mesh::Mesh mesh(inputs.job.mesh, inputs.job.mesh_order);
  const plan::MemoryBudget predicted = plan::worst(plan::predict_memory(inputs.job, inputs.model));
  Narrator narrator(inputs, options, {predicted.bytes, predicted.host_bytes});
  measure::Trace trace(mesh.world());
  RunSummary summary;
  comm::run_ranks(mesh, limits_of(inputs.job), [&](comm::Communicator& communicator) {
    const bool first = communicator.rank() == 0;
    const RunSummary mine = train_rank(inputs, options, first ? &narrator : nullptr, trace, communicator);
    if (first) {
      summary = mine;
    }
  });
  if (inputs.job.debug.trace > 0) {
    trace.write(options.folder / "trace.json");
  }
  summary.predicted = predicted.bytes;
  summary.predicted_host = predicted.host_bytes;
  return summary;
}

}  // namespace ndmesh::train
