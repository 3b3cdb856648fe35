#include <memory>

#include "ndmesh/cli/command.h"
#include "ndmesh/cli/plan_json.h"
#include "ndmesh/cli/plan_parts_json.h"
#include "ndmesh/cli/plan_serve.h"
#include "ndmesh/cli/plan_table.h"
#include "ndmesh/cli/source.h"

namespace ndmesh::cli {
namespace {

struct Options {
  std::vector<std::string> words;
  std::int64_t top = 10;
  bool explain = false;
  bool json = false;
};

int run(const Options& options) {
  const Source source = read_source(options.words, "");
  const cluster::Cluster cluster = cluster_of(source.job);
  if (source.job.plan.task == job::PlanTask::serve) {
    return plan_serve(plan::serving_question(source.job, model_of(source), cluster),
                      {options.top, options.explain, options.json});
  }
  const auto question = plan::training_question(source.job, model_of(source), cluster);
  const plan::TrainingAnswer answer = plan::answer(question, options.top);
  if (options.json) {
    print_json(to_json(answer, options.explain));
  } else {
    print_answer(answer, options.explain);
  }
  return done;
}

}  // namespace

void register_plan(CLI::App& app, Chosen& chosen) {
  CLI::App* command =
      app.add_subcommand("plan", "Rank meshes for a model, a cluster and a job; explain; say what would fit");
  auto options = std::make_shared<Options>();
  command
      ->add_option(
          "SOURCE", options->words,
          "Job file, model folder, config.json, preset or size (70B); and KEY=VALUE overrides, as in "
          "cluster=8xH100-SXM")
      ->required();
  command->add_option("--top", options->top, "Meshes in the table")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1000}))
      ->capture_default_str();
  command->add_flag("--explain", options->explain, "Walk from the cluster to the candidates, axis by axis");
  command->add_flag("--json", options->json, "Print one JSON document");
  command->callback([options, &chosen] { chosen.action = [options] { return run(*options); }; });
}

}  // namespace ndmesh::cli
