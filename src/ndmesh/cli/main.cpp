#include <exception>
#include <string>
#include <vector>

#include "ndmesh/base/error.h"
#include "ndmesh/base/log.h"
#include "ndmesh/cli/command.h"

namespace {

using namespace ndmesh;

void register_commands(CLI::App& app, cli::Chosen& chosen) {
  app.set_version_flag("--version", "ndmesh " NDMESH_VERSION);
  app.require_subcommand(1);
#ifdef NDMESH_RUNTIME
  cli::register_runtime_commands(app, chosen);
#endif
  cli::register_plan(app, chosen);
  cli::register_validate(app, chosen);
  cli::register_calibrate(app, chosen);
  cli::register_inspect(app, chosen);
  cli::register_help(app, chosen);
}

int run(const std::function<int()>& action) {
  try {
    return action();
  } catch (const RequestError& error) {
    for (const std::string& problem : error.problems()) {
      log_error(problem);
    }
    return cli::refused;
  } catch (const std::exception& error) {
    log_error(error.what());
    return cli::failed;
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Plans, runs and measures distributed training of decoder-only transformers.", "ndmesh");
  cli::Chosen chosen;
  register_commands(app, chosen);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help, --version
    if (!app.remaining(true).empty()) {  // the help of something that is not there
      log_error(cli::usage_problem(app, asked, {argv + 1, argv + argc}));
      return cli::refused;
    }
    return app.exit(asked);
  } catch (const CLI::ParseError& error) {
    log_error(cli::usage_problem(app, error, {argv + 1, argv + argc}));
    return cli::refused;
  }
  return run(chosen.action);
}
