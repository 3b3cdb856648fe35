#include <algorithm>
#include <memory>

#include "ndmesh/cli/command.h"
#include "ndmesh/cli/inspect_cluster.h"
#include "ndmesh/cli/inspect_layout.h"
#include "ndmesh/cli/inspect_mesh.h"
#include "ndmesh/cli/inspect_model.h"
#include "ndmesh/cli/inspect_schedule.h"
#include "ndmesh/cli/source.h"

namespace ndmesh::cli {
namespace {

struct Options {
  std::vector<std::string> words;
  std::string mesh;
  std::optional<std::int64_t> rank;
  bool json = false;
};

int inspect_model(const Options& options) {
  if (options.words.empty()) {
    print_families(options.json);
    return done;
  }
  const Source source = read_source(options.words, {});
  const model::ModelSpec& model = model_of(source);
  const bool has_length = source.job.is_given("batch.seq_len");
  print_model(source.name, model, has_length ? source.job.batch.seq_len : model.max_positions, options.json);
  return done;
}

int inspect_mesh(const Options& options) {
  const Source source = read_source(options.words, options.mesh);
  const mesh::Mesh mesh(source.job.mesh, source.job.mesh_order);
  print_mesh(mesh, source.model ? &*source.model : nullptr, options.json);
  return done;
}

int inspect_layout(const Options& options) {
  const Source source = read_source(options.words, options.mesh);
  const mesh::Mesh mesh(source.job.mesh, source.job.mesh_order);
  const layout::ParameterRules rules = {.sequence_parallel = source.job.tensor.sequence_parallel};
  print_layout(layout::parameter_layouts(model_of(source), mesh, rules), mesh, options.rank, options.json);
  return done;
}

int inspect_cluster(const Options& options) {
  print_cluster(cluster_of(options.words), options.json);
  return done;
}

using Command = int (*)(const Options&);

/// A command `inspect NAME` with what all of them take.
std::pair<CLI::App*, std::shared_ptr<Options>> add(CLI::App& inspect, Chosen& chosen, const std::string& name,
                                                   const std::string& help, Command command) {
  CLI::App* added = inspect.add_subcommand(name, help);
  auto options = std::make_shared<Options>();
  added->add_option("SOURCE", options->words,
                    "Job file, model folder, config.json or preset; then KEY=VALUE overrides of job keys");
  added->add_flag("--json", options->json, "Print one JSON document");
  added->callback(
      [options, command, &chosen] { chosen.action = [options, command] { return command(*options); }; });
  return {added, options};
}

}  // namespace

void register_inspect(CLI::App& app, Chosen& chosen) {
  CLI::App* inspect = app.add_subcommand(
      "inspect", "Show what a model, a mesh, a layout, a schedule or a cluster is made of");
  inspect->require_subcommand(1);
  const std::string mesh_help = "Sizes of the axes, as in dp_shard=2,tp=2; instead of the job's mesh";

  const auto [model, model_options] =
      add(*inspect, chosen, "model", "Parameters, bytes and FLOPs of a model", inspect_model);
  model->get_option("SOURCE")->description(
      "Job file, model folder, config.json or preset; nothing: the families that run and that are planned; "
      "then "
      "KEY=VALUE overrides of job keys");

  const auto [mesh, mesh_options] =
      add(*inspect, chosen, "mesh", "Which rank sits where, and the groups", inspect_mesh);
  mesh->add_option("--mesh", mesh_options->mesh, mesh_help);

  const auto [layout, layout_options] =
      add(*inspect, chosen, "layout", "Which rank holds what of every parameter", inspect_layout);
  layout->add_option("--mesh", layout_options->mesh, mesh_help);
  layout->add_option("--rank", layout_options->rank, "One rank's boxes only");

  register_inspect_schedule(*inspect, chosen);

  const auto [cluster, cluster_options] =
      add(*inspect, chosen, "cluster", "Devices, nodes and the levels of the network", inspect_cluster);
  cluster->get_option("SOURCE")->description(
      "Short form (64x8xH100-SXM), cluster file or job file; nothing: this machine; then cluster.KEY=VALUE "
      "overrides");
}

}  // namespace ndmesh::cli
