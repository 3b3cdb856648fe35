#include "ndmesh/train/parity.h"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "ndmesh/base/error.h"
#include "ndmesh/base/log.h"
#include "ndmesh/cli/runtime/commands.h"
#include "ndmesh/measure/memory_ledger.h"

namespace ndmesh::cli {
namespace {

struct Options {
  std::string job;
  std::vector<std::string> words;  ///< meshes and overrides, told apart by the dot of a key
  bool json = false;
};

bool is_override(const std::string& word) {
  return word.find('.') < word.find('=');
}

nlohmann::json to_json(const std::vector<train::MeshParity>& results) {
  auto meshes = nlohmann::json::array();
  for (const train::MeshParity& result : results) {
    meshes.push_back({{"mesh", result.mesh},
                      {"loss_error", result.loss_error},
                      {"gradient_error", result.gradient_error},
                      {"worst_parameter", result.worst_parameter},
                      {"held", result.held}});
  }
  return {{"reference", "1"}, {"meshes", meshes}};
}

void print_table(const std::vector<train::MeshParity>& results) {
  fmt::print("{:<32} {:>12} {:>16}  {:<6} {}\n", "mesh (against 1)", "loss error", "gradient error", "held",
             "worst parameter");
  for (const train::MeshParity& result : results) {
    fmt::print("{:<32} {:>12.2e} {:>16.2e}  {:<6} {}\n", result.mesh, result.loss_error,
               result.gradient_error, result.held ? "yes" : "NO", result.worst_parameter);
  }
}

int run(const Options& options) {
  std::vector<std::string> overrides;
  std::vector<mesh::MeshSizes> meshes;
  Problems problems;
  for (const std::string& word : options.words) {
    if (is_override(word)) {
      overrides.push_back(word);
      continue;
    }
    try {
      meshes.push_back(mesh::parse_mesh(word));
    } catch (const RequestError& error) {
      problems.add_all(error.problems());
    }
  }
  if (meshes.empty() && problems.empty()) {
    problems.add("parity needs at least one MESH to compare with one rank, as in dp_shard=2");
  }
  problems.raise();
  measure::install_counting_allocator();
  const auto results = train::check_parity(job::read_job(options.job, overrides), meshes, log_info);
  if (options.json) {
    fmt::print("{}\n", to_json(results).dump(2));
  } else {
    print_table(results);
  }
  const bool all_held = std::all_of(results.begin(), results.end(),
                                    [](const train::MeshParity& result) { return result.held; });
  return all_held ? done : tolerance_not_held;
}

}  // namespace

void register_parity(CLI::App& app, Chosen& chosen) {
  CLI::App* command = app.add_subcommand(
      "parity", "Train the same steps on one rank and on other meshes; compare losses and gradients");
  auto options = std::make_shared<Options>();
  command->add_option("JOB", options->job, "Job file (YAML); its mesh is not used")->required();
  command->add_option("MESH", options->words,
                      "Meshes, as in dp_shard=2,dp_replicate=2; and KEY=VALUE overrides");
  command->add_flag("--json", options->json, "Print one JSON document");
  command->callback([options, &chosen] {
    chosen.action = [options] { return with_libtorch([&] { return run(*options); }); };
  });
}

}  // namespace ndmesh::cli
