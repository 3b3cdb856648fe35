#include <fmt/format.h>

#include <algorithm>

#include "ndmesh/base/nearest.h"
#include "ndmesh/base/text.h"
#include "ndmesh/cli/command.h"

namespace ndmesh::cli {
namespace {

/// Commands of the contract that this version has not; those that are built are taken out below.
const std::vector<std::string> contract = {"plan",      "train",    "parity",   "dryrun",  "bench",  "scale",
                                           "calibrate", "validate", "tokenize", "convert", "import", "export",
                                           "generate",  "serve",    "load",     "report"};
const std::vector<std::string> inspect_contract = {"checkpoint", "record", "hang"};

/// Commands of `app`, without the app itself.
std::vector<std::string> commands_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  return names;
}

/// The innermost command that the line named.
const CLI::App& innermost(const CLI::App& app) {
  const auto parsed = app.get_subcommands();
  return parsed.empty() ? app : innermost(*parsed.back());
}

std::string unknown_command(const CLI::App& app, const std::string& word) {
  const std::vector<std::string>& planned = app.get_name() == "inspect" ? inspect_contract : contract;
  const std::vector<std::string> built = commands_of(app);
  if (std::find(planned.begin(), planned.end(), word) != planned.end()) {
    return fmt::format("{} {} is not built {}; commands: {}", full_name(app), word,
                       word == "train" || word == "parity" || word == "generate"
                           ? "into this program (it was configured with NDMESH_RUNTIME=OFF)"
                           : "yet",
                       join(built));
  }
  return fmt::format("unknown command {}{}; commands: {}", shown(word), did_you_mean(word, built),
                     join(built));
}

std::string unknown_option(const CLI::App& command, const std::string& word) {
  std::vector<std::string> options;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      options.push_back("--" + name);
    }
  }
  const std::string name = word.substr(0, word.find('='));
  return fmt::format("unknown option {} of {}{}; options: {}", shown(name), full_name(command),
                     did_you_mean(name, options), join(options));
}

}  // namespace

std::string full_name(const CLI::App& command) {
  const CLI::App* outer = command.get_parent();
  return outer == nullptr ? command.get_name() : full_name(*outer) + " " + command.get_name();
}

std::string usage_problem(const CLI::App& app, const CLI::ParseError& error,
                          const std::vector<std::string>& arguments) {
  const CLI::App& command = innermost(app);
  const std::vector<std::string> left = app.remaining(true);
  const auto is_option = [](const std::string& word) { return word.size() > 1 && word.front() == '-'; };
  const auto option = std::find_if(left.begin(), left.end(), is_option);
  if (option != left.end()) {
    return unknown_option(command, *option);
  }
  if (!commands_of(command).empty() && !left.empty()) {
    return unknown_command(command, left.front());
  }
  if (arguments.empty() || !commands_of(command).empty()) {
    return fmt::format("{0} needs a command: {1}; see {0} --help", full_name(command),
                       join(commands_of(command)));
  }
  return fmt::format("{0}: {1}; see {0} --help", full_name(command), error.what());
}

}  // namespace ndmesh::cli
