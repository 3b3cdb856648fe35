#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "ndmesh/base/units.h"
#include "ndmesh/cli/validation_text.h"
#include "ndmesh/plan/memory/training_memory.h"

namespace ndmesh::cli {
namespace {

using plan::Accuracy;

std::string number(const std::optional<double>& value) {
  return value ? fmt::format("{:.1f}", *value) : "-";
}

std::string tau(const std::optional<plan::WeightedMean>& mean) {
  return mean ? fmt::format("{:.2f}", mean->value) : "-";
}

std::string percent(const std::optional<plan::WeightedMean>& mean) {
  return mean ? fmt::format("{:.1f}", mean->value) : "-";
}

std::string verdicts(const Accuracy& accuracy) {
  return accuracy.verdict_rows > 0 ? fmt::format("{}/{}", accuracy.verdict_right, accuracy.verdict_rows)
                                   : "-";
}

std::string line(const Accuracy& part) {
  return fmt::format("{:<26} {:>5} {:>6} {:>7} {:>9} {:>6} {:>7} {:>7} {:>6} {:>6} {:>6}\n",
                     part.name.substr(0, 26), part.rows, part.memory_rows, number(part.memory_mape),
                     verdicts(part), part.time_rows, number(part.mape_uncalibrated),
                     number(part.mape_calibrated), part.ranking_groups, tau(part.tau), percent(part.regret));
}

/// Reasons with how many rows have them, the most frequent first.
std::vector<std::pair<std::string, std::int64_t>> reasons(const plan::Measurements& measurements) {
  std::map<std::string, std::int64_t> counts;
  for (const plan::LeftOut& row : measurements.left_out) {
    ++counts[row.part.empty() ? row.reason : row.part + ": " + row.reason];
  }
  std::vector<std::pair<std::string, std::int64_t>> sorted(counts.begin(), counts.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  return sorted;
}

std::string row_line(const plan::Measurement& row, const plan::Prediction& prediction) {
  std::string text =
      fmt::format("{:<18} {:<24} {:<34}", row.id, row.group.substr(0, 24), row.candidate.mesh.name());
  constexpr double gib = 1024.0 * 1024 * 1024;
  if (row.memory && prediction.bytes) {
    const auto measured = static_cast<double>(row.memory->bytes);
    const auto predicted = static_cast<double>(*prediction.bytes);
    text += fmt::format("  memory {:.2f} / {:.2f} GiB ({:+.1f} %)", predicted / gib, measured / gib,
                        100 * (predicted / measured - 1));
  }
  if (row.fits && prediction.fits) {
    text += fmt::format("  needs {:.1f} of {:.1f} GiB, {}{}", static_cast<double>(prediction.needed) / gib,
                        static_cast<double>(plan::allowed_bytes(row.problem)) / gib,
                        *row.fits ? "ran" : "out of memory", *row.fits == *prediction.fits ? "" : " WRONG");
  }
  if (row.seconds) {
    text += fmt::format(
        "  time {:.4g} {:.4g} / {:.4g} s ({:+.1f} %, {:+.1f} %){}", prediction.uncalibrated,
        prediction.calibrated, *row.seconds, 100 * (prediction.uncalibrated / *row.seconds - 1),
        100 * (prediction.calibrated / *row.seconds - 1), prediction.calibrates ? " fitted to" : "");
  }
  return text + "\n";
}

}  // namespace

std::string validation_table(const plan::Validation& validation) {
  std::string text = fmt::format("{}: {} rows, {} judged\n\n", validation.source,
                                 validation.measurements.rows, validation.all.rows);
  text += fmt::format("{:<26} {:>5} {:>6} {:>7} {:>9} {:>6} {:>7} {:>7} {:>6} {:>6} {:>6}\n", "group", "rows",
                      "memory", "error", "verdicts", "time", "error", "calib.", "groups", "tau", "regret");
  for (const Accuracy& part : validation.groups) text += line(part);
  text += line(validation.all);
  text +=
      "\nerrors and regret in percent; calib.: constants fitted to at most 12 rows of a cluster, which are "
      "not scored\n";
  if (!validation.measurements.left_out.empty()) text += "\nleft out:\n";
  for (const auto& [reason, count] : reasons(validation.measurements)) {
    text += fmt::format("{:>5}  {}\n", count, reason);
  }
  return text;
}

std::string validation_rows(const plan::Validation& validation) {
  std::string text = "\nranking groups, the largest regret first\n";
  for (const plan::RankedGroup& group :
       plan::ranked_groups(validation.measurements.list, validation.predictions)) {
    text += fmt::format("regret {:5.1f} %  tau {:>5}  {:>3} rows  picked {}, best {}: {}\n", group.regret,
                        group.tau ? fmt::format("{:.2f}", *group.tau) : "-", group.rows, group.picked,
                        group.best, group.ranking);
  }
  text += "\npredicted / measured; times uncalibrated and calibrated\n";
  for (std::size_t i = 0; i < validation.predictions.size(); ++i) {
    text += row_line(validation.measurements.list[i], validation.predictions[i]);
  }
  return text;
}

}  // namespace ndmesh::cli
