#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "ndmesh/base/error.h"
#include "ndmesh/base/nearest.h"
#include "ndmesh/base/text.h"
#include "ndmesh/cli/command.h"
#include "ndmesh/job/job.h"

namespace ndmesh::cli {
namespace {

struct Options {
  std::vector<std::string> words;
  bool reference = false;
  bool json = false;
};

void print_keys(const std::vector<job::KeyHelp>& keys) {
  for (const job::KeyHelp& key : keys) {
    fmt::print("{}\n  {}\n  {}; {}; default {}\n", key.key, key.help, key.type, key.range, key.initial);
  }
}

void print_json(const std::vector<job::KeyHelp>& keys) {
  auto list = nlohmann::ordered_json::array();
  for (const job::KeyHelp& key : keys) {
    list.push_back({{"key", key.key},
                    {"type", key.type},
                    {"default", key.initial},
                    {"range", key.range},
                    {"help", key.help}});
  }
  fmt::print("{}\n", list.dump(2));
}

/// The command that `words` name one inside the other; nullptr when they name none.
const CLI::App* find_command(const CLI::App& app, const std::vector<std::string>& words) {
  const CLI::App* command = &app;
  for (const std::string& word : words) {
    const auto found =
        command->get_subcommands([&](const CLI::App* inner) { return inner->get_name() == word; });
    if (found.empty()) {
      return nullptr;
    }
    command = found.front();
  }
  return command;
}

std::vector<std::string> topics(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  for (const job::KeyHelp& key : job::all_keys()) {
    names.push_back(key.key);
    names.push_back(key.key.substr(0, key.key.find('.')));
  }
  return names;
}

/// Keys that `word` names; none when it names a command only.
std::vector<job::KeyHelp> keys_named(const CLI::App& app, const std::string& word, bool is_command) {
  try {
    return job::help_for(word);
  } catch (const RequestError&) {
    if (is_command) {
      return {};
    }
    throw RequestError("no command, job key or section is named " + shown(word) +
                       did_you_mean(word, topics(app)));
  }
}

/// CLI11's own help() shows the command that the line named, which is `help`.
std::string help_of(const CLI::App& command) {
  return command.get_formatter()->make_help(&command, full_name(command), CLI::AppFormatMode::Normal);
}

int print_overview(const CLI::App& app) {
  fmt::print("{}\n", help_of(app));
  fmt::print("help COMMAND, help SECTION and help KEY say more. Sections of a job:\n ");
  std::string last;
  for (const job::KeyHelp& key : job::all_keys()) {
    if (const std::string section = key.key.substr(0, key.key.find('.')); section != last) {
      fmt::print(" {}", section);
      last = section;
    }
  }
  fmt::print("\n");
  return done;
}

/// Some words name both a command and a section of the job (`train`): both are shown.
int help(const CLI::App& app, const Options& options) {
  if (options.reference) {
    fmt::print("{}", job::reference_page());
    return done;
  }
  if (options.words.empty()) {
    return options.json ? (print_json(job::all_keys()), done) : print_overview(app);
  }
  const CLI::App* command = find_command(app, options.words);
  if (options.words.size() > 1 && command == nullptr) {
    throw RequestError("no command is named " + shown(join(options.words, " ")));
  }
  const auto keys = options.words.size() > 1 ? std::vector<job::KeyHelp>()
                                             : keys_named(app, options.words.front(), command != nullptr);
  if (options.json) {
    print_json(keys);
    return done;
  }
  if (command != nullptr) {
    fmt::print("{}{}", help_of(*command),
               keys.empty() ? "" : "\nKeys of the job's section of that name:\n\n");
  }
  print_keys(keys);
  return done;
}

}  // namespace

void register_help(CLI::App& app, Chosen& chosen) {
  CLI::App* command = app.add_subcommand("help", "Say more about a command, a job key or a section of keys");
  auto options = std::make_shared<Options>();
  command->add_option("TOPIC", options->words, "Command, key (mesh.tp_size) or section (mesh)");
  command->add_flag("--reference", options->reference, "Print the page of all job keys, in Markdown");
  command->add_flag("--json", options->json, "Print the keys as one JSON document");
  command->callback(
      [options, &app, &chosen] { chosen.action = [options, &app] { return help(app, *options); }; });
}

}  // namespace ndmesh::cli
