#include "ndmesh/train/run.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <ctime>
#include <memory>

#include "ndmesh/base/error.h"
#include "ndmesh/base/log.h"
#include "ndmesh/base/units.h"
#include "ndmesh/cli/runtime/commands.h"
#include "ndmesh/measure/memory_ledger.h"
#include "ndmesh/measure/record.h"
#include "ndmesh/plan/memory.h"

namespace ndmesh::cli {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::string job;
  std::vector<std::string> overrides;
  std::string out;
  bool overwrite = false;
  bool json = false;
};

std::atomic<bool> stop_asked{false};
static_assert(std::atomic<bool>::is_always_lock_free);

/// The first signal asks for an orderly end after the running step; the next one ends the program as usual.
void ask_to_stop(int signal) {
  stop_asked = true;
  std::signal(signal, SIG_DFL);
}

/// Freed tensors stay with the process for the next ones. Handed back, each of them would be zeroed and mapped again
/// by the kernel in every step.
void keep_freed_memory() {
#ifdef __GLIBC__
  constexpr int bytes = 1 << 30;
  mallopt(M_MMAP_THRESHOLD, bytes);
  mallopt(M_TRIM_THRESHOLD, bytes);
#endif
}

fs::path run_folder(const Options& options, const job::Job& job) {
  if (!options.out.empty()) {
    return options.out;
  }
  return fs::path("runs") / fmt::format("{}-{:%Y%m%d-%H%M%S}", job.name, fmt::localtime(std::time(nullptr)));
}

void prepare(const fs::path& folder, bool overwrite) {
  if (fs::exists(folder / "record.jsonl") && !overwrite) {
    throw RequestError(
        fmt::format("--out: {} already holds the record of a run; name another folder, or give "
                    "--overwrite to replace it",
                    folder.string()));
  }
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    throw RequestError(fmt::format("--out: cannot make {}: {}", folder.string(), error.message()));
  }
}

std::string introduction(const train::Inputs& inputs, const MemoryBytes& predicted) {
  const job::Job& job = inputs.job;
  const mesh::Mesh mesh(job.mesh, job.mesh_order);
  return fmt::format(
      "{} of {} parameters, {}, in {}\n"
      "mesh {}: {} ranks, {} threads each; a step is {} sequences of {} tokens, in {} micro-batches a rank\n"
      "predicted memory of the fullest rank: {}",
      inputs.model.family, grouped(inputs.model.parameter_count()),
      inputs.weights != nullptr ? "values from " + job.model.path
                                : fmt::format("fresh values of seed {}", job.run.seed),
      name_of(job.dtype), job.mesh.name(), mesh.world(), job::threads_per_rank(job), job.batch.global,
      job.batch.seq_len, job::accumulation(job), binary_bytes(predicted.total()));
}

/// What pipeline.measure saw, and what came of it.
std::string measured_stages(const train::LayerSeconds& seconds, const job::Job& job) {
  constexpr double ms = 1e3;
  const auto [least, most] = std::minmax_element(seconds.layers.begin(), seconds.layers.end());
  return fmt::format(
      "measured for a micro-batch: layers {:.1f} to {:.1f} ms, embedding {:.1f} ms, head {:.1f} ms; "
      "pipeline.layers: [{}]",
      ms * *least, ms * *most, ms * seconds.embedding, ms * seconds.head,
      fmt::join(job.pipeline.layers.layers, ", "));
}

nlohmann::json summary_json(const train::RunSummary& summary, const fs::path& folder) {
  return {{"folder", folder.string()},
          {"steps", summary.steps},
          {"interrupted", summary.interrupted},
          {"loss", summary.last_loss},
          {"predicted_memory", measure::to_json(summary.predicted)},
          {"counted_memory", measure::to_json(summary.counted)},
          {"predicted_host_memory", summary.predicted_host},
          {"counted_host_memory", summary.counted_host.peak}};
}

int run(const Options& options) {
  keep_freed_memory();
  measure::install_counting_allocator();
  const train::Inputs inputs = train::open_inputs(job::read_job(options.job, options.overrides));
  for (const std::string& warning : job::keys_of_planning(inputs.job)) {
    log_warning(warning);
  }
  if (inputs.weights != nullptr) {
    for (const std::string& warning : inputs.weights->warnings()) {
      log_warning(warning);
    }
  }
  const fs::path folder = run_folder(options, inputs.job);
  prepare(folder, options.overwrite);
  for (const std::string& note : job::notes_of(inputs.job, inputs.model)) {
    log_info("note: " + note);
  }
  if (inputs.measured) {
    log_info(measured_stages(*inputs.measured, inputs.job));
  }
  log_info(introduction(inputs, plan::worst(plan::predict_memory(inputs.job, inputs.model)).bytes));

  std::signal(SIGINT, ask_to_stop);
  std::signal(SIGTERM, ask_to_stop);
  std::signal(SIGXFSZ, SIG_IGN);  // a file-size limit is then an error of the write, which is reported
  const train::RunSummary summary = train::run_training(inputs, {folder, &stop_asked, log_info});

  log_info("memory of the fullest rank, each category's own peak\n" +
           measure::memory_table({summary.predicted, summary.predicted_host},
                                 {summary.counted, summary.counted_host.peak}));
  if (summary.interrupted) {
    log_info(fmt::format("interrupted: the model after step {} is in {}", summary.steps,
                         (folder / "model").string()));
  }
  if (options.json) {
    fmt::print("{}\n", summary_json(summary, folder).dump(2));
  }
  return done;
}

}  // namespace

void register_train(CLI::App& app, Chosen& chosen) {
  CLI::App* command = app.add_subcommand("train", "Train a model as a job file says");
  auto options = std::make_shared<Options>();
  command->add_option("JOB", options->job, "Job file (YAML)")->required();
  command->add_option("KEY=VALUE", options->overrides,
                      "Overrides of single keys, as in mesh.dp_shard_size=2");
  command->add_option("--out", options->out, "Run folder; default runs/NAME-TIME");
  command->add_flag("--overwrite", options->overwrite, "Replace the record of an earlier run in that folder");
  command->add_flag("--json", options->json, "Print one JSON document on standard output at the end");
  command->callback([options, &chosen] {
    chosen.action = [options] { return with_libtorch([&] { return run(*options); }); };
  });
}

}  // namespace ndmesh::cli
