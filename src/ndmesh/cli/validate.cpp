#include <fmt/format.h>

#include <memory>

#include "ndmesh/base/error.h"
#include "ndmesh/base/file.h"
#include "ndmesh/base/log.h"
#include "ndmesh/base/text.h"
#include "ndmesh/cli/command.h"
#include "ndmesh/cli/validation_text.h"
#include "ndmesh/plan/measured/limits.h"

namespace ndmesh::cli {
namespace {

struct Options {
  std::vector<std::string> words;   ///< the table, then more limits
  std::vector<std::string> limits;  ///< by --limit
  std::string page;
  bool rows = false;
  bool json = false;
};

std::vector<plan::Limit> parse_limits(const std::vector<std::string>& texts) {
  std::vector<plan::Limit> limits;
  Problems problems;
  for (const std::string& text : texts) {
    try {
      limits.push_back(plan::parse_limit(text));
    } catch (const RequestError& error) {
      problems.add_all(error.problems());
    }
  }
  problems.raise();
  return limits;
}

int run(const Options& options) {
  const std::string& file = options.words.front();
  std::vector<std::string> texts = options.limits;
  texts.insert(texts.end(), options.words.begin() + 1, options.words.end());
  const std::vector<plan::Limit> limits = parse_limits(texts);
  const plan::Validation validation = plan::validate(plan::read_measurements(file), file);
  const std::vector<std::string> broken = plan::broken_limits(limits, validation.all, validation.groups);
  if (options.json) {
    fmt::print("{}\n", validation_json(validation).dump(2));
  } else {
    fmt::print("{}", validation_table(validation));
    if (options.rows) fmt::print("{}", validation_rows(validation));
  }
  if (!options.page.empty()) write_file(options.page, validation_page(validation));
  for (const std::string& limit : broken) log_error(limit);
  return broken.empty() ? done : tolerance_not_held;
}

}  // namespace

void register_validate(CLI::App& app, Chosen& chosen) {
  CLI::App* command = app.add_subcommand("validate", "Compare the planner with measurements");
  auto options = std::make_shared<Options>();
  command->add_option("CSV", options->words, "Table of training measurements")->required();
  CLI::Option* limit = command->add_option(
      "--limit", options->limits,
      "[GROUP:]FIGURE=NUMBER that must hold, else exit status 3; figures: " + join(plan::limit_figures()));
  limit->allow_extra_args(false);
  command->add_flag("--rows", options->rows,
                    "Also print every ranking group and row, predicted beside measured");
  command->add_option("--page", options->page, "Write the figures as a Markdown page");
  command->add_flag("--json", options->json, "Print one JSON document");
  command->callback([options, &chosen] { chosen.action = [options] { return run(*options); }; });
}

}  // namespace ndmesh::cli
