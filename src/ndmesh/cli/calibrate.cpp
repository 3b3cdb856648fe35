#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "ndmesh/base/error.h"
#include "ndmesh/base/file.h"
#include "ndmesh/base/text.h"
#include "ndmesh/cli/command.h"
#include "ndmesh/plan/measured/calibration.h"

namespace ndmesh::cli {
namespace {

struct Options {
  std::string from;
  std::string out;
  bool json = false;
};

using plan::Calibration;

/// Constants that the fit could move.
bool is_fitted(const plan::Constant& constant) {
  return constant.spread > 0;
}

std::string origin_of(const Calibration& calibration, const std::string& source) {
  return fmt::format("fit to {} rows of {}: mean error {:.1f} % (before {:.1f} %)", calibration.rows, source,
                     100 * calibration.error_after, 100 * calibration.error_before);
}

/// Rows of the table of constants, as it is built in.
std::string constants_csv(const std::vector<Calibration>& calibrations, const std::string& source) {
  std::string text = "name,architecture,runtime,unit,value,spread,origin\n";
  for (const Calibration& calibration : calibrations) {
    for (const plan::Constant& constant : calibration.after.list) {
      if (!is_fitted(constant)) continue;
      text += fmt::format("{},{},{},{},{:.4g},{:g},{}\n", constant.name, calibration.architecture,
                          calibration.runtime, constant.unit, constant.value, constant.spread,
                          origin_of(calibration, source));
    }
  }
  return text;
}

void print_table(const std::vector<Calibration>& calibrations, const std::string& source) {
  for (const Calibration& calibration : calibrations) {
    fmt::print("{}, {}: {}\n", calibration.architecture, calibration.runtime, origin_of(calibration, source));
    for (std::size_t i = 0; i < calibration.after.list.size(); ++i) {
      const plan::Constant& after = calibration.after.list[i];
      const plan::Constant& before = calibration.before.list[i];
      if (!is_fitted(after)) continue;
      fmt::print("  {:<26} {:>10.4g} (before {:.4g}) {}\n", after.name, after.value, before.value,
                 after.unit);
    }
  }
}

nlohmann::ordered_json to_json(const std::vector<Calibration>& calibrations,
                               const plan::Measurements& measurements) {
  auto fits = nlohmann::ordered_json::array();
  for (const Calibration& calibration : calibrations) {
    auto constants = nlohmann::ordered_json::array();
    for (std::size_t i = 0; i < calibration.after.list.size(); ++i) {
      const plan::Constant& after = calibration.after.list[i];
      if (!is_fitted(after)) continue;
      constants.push_back({{"name", after.name},
                           {"unit", after.unit},
                           {"before", calibration.before.list[i].value},
                           {"value", after.value}});
    }
    fits.push_back({{"architecture", calibration.architecture},
                    {"runtime", calibration.runtime},
                    {"rows", calibration.rows},
                    {"error_before", 100 * calibration.error_before},
                    {"error_after", 100 * calibration.error_after},
                    {"constants", constants}});
  }
  return {{"rows", measurements.rows}, {"fits", fits}};
}

int run(const Options& options) {
  if (options.from.empty()) {
    throw RequestError(
        "ndmesh calibrate without --from, measuring this machine, is not built yet; allowed: --from CSV, a "
        "table of "
        "measurements to fit the constants to");
  }
  plan::Measurements measurements = plan::read_measurements(options.from);
  const std::vector<Calibration> calibrations = plan::calibrate(measurements);
  if (calibrations.empty()) {
    throw RequestError(fmt::format(
        "{}: no cluster has three rows with a time, which a fit takes at least; {} rows were read",
        shown(options.from), measurements.rows));
  }
  const std::string source = std::filesystem::path(options.from).filename().string();
  if (options.json) {
    fmt::print("{}\n", to_json(calibrations, measurements).dump(2));
  } else {
    print_table(calibrations, source);
  }
  if (!options.out.empty()) write_file(options.out, constants_csv(calibrations, source));
  return done;
}

}  // namespace

void register_calibrate(CLI::App& app, Chosen& chosen) {
  CLI::App* command = app.add_subcommand("calibrate", "Fit the constants of the time model to measurements");
  auto options = std::make_shared<Options>();
  command->add_option("--from", options->from, "Table of training measurements");
  command->add_option("--out", options->out, "Write the constants as CSV, in the form of the built-in table");
  command->add_flag("--json", options->json, "Print one JSON document");
  command->callback([options, &chosen] { chosen.action = [options] { return run(*options); }; });
}

}  // namespace ndmesh::cli
