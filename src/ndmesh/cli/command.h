#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

namespace ndmesh::cli {

/// What the program ends with.
enum Status : int { done = 0, failed = 1, refused = 2, tolerance_not_held = 3 };

/// What the command line asked for. A command's callback only stores its action here; `main` runs it once the
/// whole line has been read, turns RequestError into `refused` and everything else into `failed`, and ends
/// with the action's status.
struct Chosen {
  std::function<int()> action;
};

// Each function adds commands to `app`. `app` and `chosen` outlive the actions; a command keeps its own
// options alive by what its callback captures.
void register_plan(CLI::App& app, Chosen& chosen);
void register_validate(CLI::App& app, Chosen& chosen);
void register_calibrate(CLI::App& app, Chosen& chosen);
void register_inspect(CLI::App& app, Chosen& chosen);
void register_help(CLI::App& app, Chosen& chosen);
/// train, parity, generate: cli/runtime, built with NDMESH_RUNTIME only.
void register_runtime_commands(CLI::App& app, Chosen& chosen);

/// "ndmesh inspect layout".
std::string full_name(const CLI::App& command);

/// Says why a command line cannot be read, in the words of ndmesh: unknown commands and options with the
/// nearest, commands that are not built by name.
std::string usage_problem(const CLI::App& app, const CLI::ParseError& error,
                          const std::vector<std::string>& arguments);

}  // namespace ndmesh::cli
