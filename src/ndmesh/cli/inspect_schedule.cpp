#include "ndmesh/cli/inspect_schedule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "ndmesh/base/error.h"
#include "ndmesh/base/file.h"
#include "ndmesh/base/text.h"
#include "ndmesh/cli/source.h"
#include "ndmesh/mesh/rules.h"
#include "ndmesh/schedule/schedule_file.h"
#include "ndmesh/schedule/simulate.h"

namespace ndmesh::cli {
namespace {

using Json = nlohmann::ordered_json;
using schedule::Shape;
using schedule::Simulation;
using schedule::StageSeconds;

/// Most stages x micro-batches that are shown.
constexpr std::int64_t max_shown = 65'536;
constexpr std::int64_t widest = 10'000;
constexpr std::int64_t widest_unasked = 150;

struct Options {
  std::vector<std::string> words;
  std::optional<std::int64_t> ranks, chunks, micro_batches, width, rank;
  std::string svg;  ///< file; empty: none
  StageSeconds seconds = {1, 1, 1, 0};
  bool json = false;
};

/// What is shown.
struct Subject {
  std::string name;
  schedule::Schedule schedule;

  const Shape& shape() const { return schedule.shape; }
  bool splits_backward() const {
    const auto splits = [](const schedule::Action& a) { return a.kind == schedule::ActionKind::input_grad; };
    return std::any_of(schedule.ranks.begin(), schedule.ranks.end(), [&](const auto& actions) {
      return std::any_of(actions.begin(), actions.end(), splits);
    });
  }
};

/// The job that the words name; a kind or a schedule file among them is its pipeline.schedule.
job::Job job_of(const Options& options) {
  std::vector<std::string> words = options.words;
  for (std::string& word : words) {
    const std::vector<std::string> kinds = schedule::kind_names();
    const bool is_kind = std::find(kinds.begin(), kinds.end(), word) != kinds.end();
    if (is_kind || word.ends_with(schedule::file_ending)) word.insert(0, "pipeline.schedule=");
  }
  return read_source(words, {}).job;
}

/// What the job says of the batch. RequestError with the rules that it breaks.
std::int64_t micro_batches_of(const job::Job& job, const Shape& shape) {
  if (!job.is_given("batch.global")) {
    throw RequestError(
        "the number of micro-batches is needed: --micro-batches M, or batch.global of a job or override");
  }
  mesh::RuleInput input;
  input.mesh = job.mesh;
  input.mesh.pp = shape.ranks;
  input.global_batch = job.batch.global;
  input.micro_batch = job.batch.micro;
  input.chunks = shape.chunks;
  input.interleaving = mesh::Interleaving::flexible;
  Problems problems;
  problems.add_all(mesh::broken_rules(input));
  problems.raise();
  return mesh::micro_batches(input).value();
}

Shape shape_of(const Options& options, const job::Job& job) {
  if (!options.ranks && !job.is_given("mesh.pp_size")) {
    throw RequestError("the number of ranks is needed: --ranks P, or mesh.pp_size of a job or override");
  }
  Shape shape = {.kind = job.pipeline.schedule, .ranks = options.ranks.value_or(job.mesh.pp)};
  const std::int64_t fewest = shape.ranks == 1 ? 1 : schedule::least_chunks(shape.kind);
  shape.chunks = options.chunks.value_or(job.pipeline.chunks > 0 ? job.pipeline.chunks : fewest);
  shape.micro_batches = options.micro_batches ? *options.micro_batches : micro_batches_of(job, shape);
  return shape;
}

/// `is_list`: it has no kind that deals micro-batches out.
void check(const Options& options, const Shape& shape, bool is_list) {
  Problems problems;
  if (!is_list) problems.add_all(schedule::problems_of(shape));
  if (problems.empty() && shape.stages() * shape.micro_batches > max_shown) {
    problems.add(fmt::format("{} stages x {} micro-batches are too many to show; at most {}", shape.stages(),
                             shape.micro_batches, max_shown));
  }
  const auto check_seconds = [&](std::string_view name, double seconds) {
    if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e9)
      problems.add(fmt::format("{}: {} is not allowed; 0 to 1e9 seconds", name, seconds));
  };
  check_seconds("--forward", options.seconds.forward);
  check_seconds("--input-grad", options.seconds.input_grad);
  check_seconds("--weight-grad", options.seconds.weight_grad);
  check_seconds("--send", options.seconds.send);
  if (options.width && (*options.width < 1 || *options.width > widest))
    problems.add(fmt::format("--width: {} is not allowed; 1 to {}", *options.width, widest));
  if (options.rank && (*options.rank < 0 || *options.rank >= std::max<std::int64_t>(1, shape.ranks)))
    problems.add(fmt::format("--rank: {} is no rank; 0 to {}", *options.rank, shape.ranks - 1));
  problems.raise();
}

/// So many columns that the shortest action has one, if that is not too wide.
std::int64_t width_of(const Options& options, const Simulation& simulation) {
  if (options.width) return *options.width;
  double shortest = simulation.seconds;
  for (const double seconds :
       {options.seconds.forward, options.seconds.input_grad, options.seconds.weight_grad}) {
    if (seconds > 0) shortest = std::min(shortest, seconds);
  }
  const double columns = shortest > 0 ? std::round(simulation.seconds / shortest) : 1;
  return static_cast<std::int64_t>(std::clamp<double>(columns, 1, widest_unasked));
}

/// Of a file: that it can run.
Subject list_of(const job::Job& job, const Options& options) {
  if (options.ranks || options.chunks || options.micro_batches) {
    throw RequestError(
        fmt::format("{} says itself how many ranks, chunks and micro-batches it has; --ranks, --chunks and "
                    "--micro-batches are for schedules by name",
                    job.pipeline.file));
  }
  Problems problems;
  for (const std::string& defect : schedule::defects(*job.pipeline.list)) {
    problems.add(job.pipeline.file + ": " + defect);
  }
  problems.raise();
  return {job.pipeline.file, *job.pipeline.list};
}

Subject subject_of(const Options& options) {
  const job::Job job = job_of(options);
  const Shape shape = job.pipeline.list ? job.pipeline.list->shape : shape_of(options, job);
  check(options, shape, job.pipeline.list != nullptr);
  return job.pipeline.list ? list_of(job, options)
                           : Subject{std::string(name_of(shape.kind)), schedule::make_schedule(shape)};
}

Json shape_json(const Subject& subject) {
  const Shape& shape = subject.shape();
  return {{"schedule", subject.name},
          {"ranks", shape.ranks},
          {"chunks", shape.chunks},
          {"micro_batches", shape.micro_batches}};
}

void print_actions(const Subject& subject, std::int64_t rank, bool json) {
  const auto& actions = subject.schedule.ranks[static_cast<std::size_t>(rank)];
  if (!json) {
    for (const schedule::Action& action : actions)
      fmt::print("{:<17} chunk {}  micro-batch {}\n", name_of(action.kind), action.chunk, action.micro_batch);
    return;
  }
  Json document = shape_json(subject);
  document["rank"] = rank;
  document["actions"] = Json::array();
  for (const schedule::Action& action : actions) {
    document["actions"].push_back(
        {{"action", name_of(action.kind)}, {"chunk", action.chunk}, {"micro_batch", action.micro_batch}});
  }
  fmt::print("{}\n", document.dump(2));
}

/// `least`: by closed form; null for a file, which has none.
void print_json(const Subject& subject, const Simulation& simulation, const Json& least, std::int64_t width) {
  const Shape& shape = subject.shape();
  Json document = shape_json(subject);
  document["seconds"] = simulation.seconds;
  document["least_seconds"] = least;
  document["bubble"] = simulation.bubble();
  document["busy"] = simulation.busy;
  document["peak_in_flight"] = Json::array();
  for (std::int64_t rank = 0; rank < shape.ranks; ++rank)
    document["peak_in_flight"].push_back(schedule::most_in_flight(subject.schedule, rank));
  document["timeline"] = timeline(simulation, shape, width);
  document["intervals"] = Json::array();
  for (const schedule::Interval& interval : simulation.intervals) {
    document["intervals"].push_back({{"rank", interval.rank},
                                     {"action", name_of(interval.kind)},
                                     {"chunk", interval.chunk},
                                     {"micro_batch", interval.micro_batch},
                                     {"start", interval.start},
                                     {"end", interval.end}});
  }
  fmt::print("{}\n", document.dump(2));
}

void print_text(const Subject& subject, const StageSeconds& seconds, const Simulation& simulation,
                std::int64_t width) {
  const Shape& shape = subject.shape();
  fmt::print("{}: {} ranks, {}{} micro-batches\n", subject.name, shape.ranks,
             shape.chunks > 1 ? fmt::format("{} chunks each, ", shape.chunks) : "", shape.micro_batches);
  fmt::print("seconds of a chunk: forward {}, input gradient {}, weight gradient {}, send {}\n\n",
             seconds.forward, seconds.input_grad, seconds.weight_grad, seconds.send);
  const std::vector<std::string> lines = timeline(simulation, shape, width);
  for (std::int64_t rank = 0; rank < shape.ranks; ++rank) {
    fmt::print("rank {:>3}  {}  holds {}\n", rank, lines[static_cast<std::size_t>(rank)],
               schedule::most_in_flight(subject.schedule, rank));
  }
  fmt::print("\n0-9 forward of micro-batch ..0 to ..9, a-j its {}, . waiting\n",
             subject.splits_backward() ? "input gradient, A-J its weight gradient" : "backward");
  fmt::print("holds: most micro-batches whose activations are kept{}\n",
             shape.chunks > 1 ? ", each chunk counted" : "");
  fmt::print("step {:.6g} s, bubble {:.1f} %\n", simulation.seconds, 100 * simulation.bubble());
}

int inspect_schedule(const Options& options) {
  const Subject subject = subject_of(options);
  const Shape& shape = subject.shape();
  if (options.rank) {
    print_actions(subject, *options.rank, options.json);
    return done;
  }
  const bool is_list = subject.name.ends_with(schedule::file_ending);
  const std::vector<StageSeconds> stages(static_cast<std::size_t>(shape.stages()), options.seconds);
  const Simulation simulation =
      is_list ? schedule::simulate_list(subject.schedule, stages) : schedule::simulate(shape, stages, true);
  const std::int64_t width = width_of(options, simulation);
  if (!options.svg.empty()) {
    write_file(options.svg, schedule::timeline_svg(simulation, shape));
  }
  if (options.json) {
    print_json(subject, simulation, is_list ? Json() : Json(schedule::least_seconds(shape, stages)), width);
  } else {
    print_text(subject, options.seconds, simulation, width);
  }
  return done;
}

}  // namespace

void register_inspect_schedule(CLI::App& inspect, Chosen& chosen) {
  CLI::App* command = inspect.add_subcommand("schedule", "Who does what when in a pipeline");
  auto options = std::make_shared<Options>();
  command->add_option(
      "SOURCE", options->words,
      fmt::format("Job file, a schedule ({}) or a file NAME.schedule; then KEY=VALUE overrides of job keys",
                  join(schedule::kind_names())));
  command->add_option("--ranks", options->ranks, "Pipeline ranks; instead of mesh.pp_size");
  command->add_option("--micro-batches", options->micro_batches,
                      "Micro-batches of a step; instead of batch.global / (batch.micro x batch ranks)");
  command->add_option("--chunks", options->chunks, "Chunks of each rank; instead of pipeline.chunks");
  command->add_option("--forward", options->seconds.forward, "Seconds of a chunk's forward (1)");
  command->add_option("--input-grad", options->seconds.input_grad, "Seconds of its input gradient (1)");
  command->add_option("--weight-grad", options->seconds.weight_grad, "Seconds of its weight gradient (1)");
  command->add_option("--send", options->seconds.send, "Seconds of a transfer between ranks (0)");
  command->add_option("--width", options->width, "Columns of the timeline");
  command->add_option("--rank", options->rank, "List one rank's actions instead, as they are executed");
  command->add_option("--svg", options->svg, "Write the timeline as a picture to this file too");
  command->add_flag("--json", options->json, "Print one JSON document");
  command->callback([options, &chosen] { chosen.action = [options] { return inspect_schedule(*options); }; });
}

}  // namespace ndmesh::cli
