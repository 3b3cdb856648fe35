#include "ndmesh/plan/measured/measurements.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "ndmesh/base/file.h"
#include "ndmesh/base/text.h"
#include "ndmesh/plan/measured/distrust.h"
#include "ndmesh/plan/measured/measured_model.h"
#include "ndmesh/plan/measured/measured_run.h"
#include "ndmesh/plan/measured/measured_setup.h"
#include "ndmesh/plan/measured/measured_time.h"
#include "ndmesh/plan/measured/memory_of_runs.h"
#include "ndmesh/plan/measured/vtrain_table.h"

namespace ndmesh::plan {
namespace {

constexpr std::int64_t most_file_bytes = std::int64_t{64} * 1024 * 1024;
constexpr CsvLimits table_limits = {.records = 100'000};

constexpr std::array training_columns = {"id", "layers", "hidden", "seq_len", "gpu", "gpus", "global_batch"};

/// Constants, and ranks of meshes, are compared within one of these only.
std::string cluster_of(const MeasuredRow& row) {
  const std::string_view fixed = "after NUMA/network fix";  // BLOOM's machine before and after its repair
  return fmt::format("{} {} {}{}", row.text("group"), row.text("gpu"), row.text("interconnect"),
                     row.noted(fixed) ? ", after the fix" : "");
}

std::string ranking_of(const Measurement& row) {
  const Problem& problem = row.problem;
  const model::ModelSpec& model = problem.model;
  return fmt::format("{}; {} layers {} hidden {} ffn {} heads {} vocab {} experts; {} devices, batch {} x {}",
                     row.cluster, model.layers, model.hidden, model.ffn, model.heads, model.vocab,
                     model.experts ? model.experts->count : 0, problem.cluster.devices(),
                     problem.global_batch, problem.seq_len);
}

job::ContextKind context_kind(const MeasuredRow& row, const std::string& runtime) {
  if (row.noted("Ulysses")) return job::ContextKind::alltoall;
  return runtime == "torchtitan" ? job::ContextKind::allgather : job::ContextKind::ring;
}

Measurement measurement_of(const MeasuredRow& row) {
  Measurement result;
  result.id = row.text("id");
  result.group = row.text("group");
  result.cluster = cluster_of(row);
  Problem& problem = result.problem;
  problem.model = measured_model(row);
  problem.cluster = measured_cluster(row);
  const std::string runtime = measured_runtime(row);
  problem.profile = profile(runtime);
  problem.profile.time = measured_time(row, problem.profile.time);
  problem.context = context_kind(row, runtime);
  problem.seq_len = row.whole("seq_len").value_or(1);
  problem.global_batch = row.whole("global_batch").value_or(1);
  problem.precision = measured_precision(row);
  problem.ends_are_layers = row.noted("one layer fewer") || row.noted("embedding counted as its own layer") ||
                            row.noted("one layer each") ||
                            row.noted("account-for-embedding-in-pipeline-split");
  problem.headroom = 0;  // a run either went through or did not
  result.candidate = measured_candidate(row, problem.model);
  if (!row.problems().empty()) return result;
  set_memory_of_run(row, result.candidate.micro, problem);
  check_mesh(row, result);
  result.seconds = measured_seconds(row, problem);
  result.memory = measured_memory(row);
  result.ranking = ranking_of(result);
  return result;
}

/// Whether the row tells that its mesh fits: it ended out of memory, or has a time or a memory peak. What
/// decides memory must be stated.
std::optional<bool> verdict(const MeasuredRow& row, const Measurement& measurement,
                            std::vector<LeftOut>& left_out) {
  const bool ran_out = row.text("status") == "oom";
  if (!ran_out && !measurement.seconds && !measurement.memory) return std::nullopt;
  if (!row.has("recompute")) {
    left_out.push_back({measurement.id, "verdict", "recompute is not stated"});
    return std::nullopt;
  }
  return !ran_out;
}

/// Takes what `part` names from the measurement; whether it was there.
bool drop(Measurement& measurement, const std::string& part) {
  const bool there = (part == "memory" && measurement.memory) || (part == "time" && measurement.seconds) ||
                     (part == "verdict" && measurement.fits);
  if (part == "memory") measurement.memory.reset();
  if (part == "time") measurement.seconds.reset();
  if (part == "verdict") measurement.fits.reset();
  return there;
}

void add_row(const MeasuredRow& row, Measurements& all) {
  Measurement measurement = measurement_of(row);
  if (measurement.id.empty()) measurement.id = fmt::format("line {}", row.line());
  const std::vector<Distrust> objections = distrust(row);
  for (const Distrust& objection : objections) {
    if (objection.part.empty()) row.problems().add(objection.reason);
  }
  if (!row.problems().empty()) {
    all.left_out.push_back({measurement.id, "", join(row.problems().list(), "; ")});
    return;
  }
  measurement.fits = verdict(row, measurement, all.left_out);
  for (const Distrust& objection : objections) {
    if (drop(measurement, objection.part)) {
      all.left_out.push_back({measurement.id, objection.part, objection.reason});
    }
  }
  if (!measurement.fits && !measurement.seconds && !measurement.memory) {
    all.left_out.push_back({measurement.id, "", "nothing is left that was measured"});
    return;
  }
  all.list.push_back(std::move(measurement));
}

}  // namespace

Measurements parse_measurements(std::string_view text, const std::string& source) {
  const CsvTable table = parse_csv(text, source, table_limits);
  if (is_vtrain_table(table)) return vtrain_measurements(table);
  Problems problems;
  for (const char* const column : training_columns) {
    if (!table.find(column)) problems.add(fmt::format("{}: line 1 lacks the column {}", source, column));
  }
  if (!problems.empty()) {
    problems.add(
        fmt::format("{}: neither a training table nor a vTrain table ({})", source, join(vtrain_columns())));
  }
  problems.raise();
  Measurements all;
  all.rows = static_cast<std::int64_t>(table.records.size());
  for (const CsvRecord& record : table.records) add_row(MeasuredRow(table, record), all);
  return all;
}

Measurements read_measurements(const std::filesystem::path& file) {
  return parse_measurements(read_file(file, most_file_bytes), file.string());
}

std::vector<RowsOf> rows_by(const std::vector<Measurement>& list,
                            const std::function<std::string(const Measurement&)>& key) {
  std::vector<RowsOf> result;
  std::map<std::string, std::size_t> position;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const auto [found, fresh] = position.try_emplace(key(list[i]), result.size());
    if (fresh) result.push_back({found->first, {}});
    result[found->second].rows.push_back(i);
  }
  return result;
}

}  // namespace ndmesh::plan
