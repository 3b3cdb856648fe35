#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ndmesh/plan/problem.h"

namespace ndmesh::plan {

/// A peak of device memory that somebody measured.
struct MeasuredMemory {
  /// Bytes of live tensors; what the allocator took from the device; all that the device lost, context
  /// included.
  enum class Kind { allocated, reserved, device };
  /// Of which pipeline rank.
  enum class Scope { worst, first, last };
  std::int64_t bytes = 0;
  Kind kind = Kind::reserved;
  Scope scope = Scope::worst;
};

/// One published measurement as the planner sees it: what was planned, and what came of it.
struct Measurement {
  std::string id;
  std::string group;    ///< the source, for tables
  std::string cluster;  ///< same machines and software: constants are fitted for each
  std::string
      ranking;  ///< rows of one text differ only in what a planner chooses: same cluster, model, devices,
                ///< batch and sequence
  Problem problem;
  Candidate candidate;
  std::optional<bool> fits;       ///< it ran, or ended out of memory; nothing where that decides nothing
  std::optional<double> seconds;  ///< of one step
  std::optional<MeasuredMemory> memory;
};

/// Why a row is not judged: at all, or (`part` "memory", "time" or "verdict") in one respect.
struct LeftOut {
  std::string id;
  std::string part;  ///< empty: at all
  std::string reason;
};

struct Measurements {
  std::int64_t rows = 0;  ///< of the file
  std::vector<Measurement> list;
  std::vector<LeftOut> left_out;
};

/// Reads a table of measurements, recognised by its header; columns that are not known are ignored.
///   training table: id, model dimensions, gpu, mesh, batch, and step_time_s, tokens_per_s_per_gpu,
///     tflops_per_gpu, peak_mem_gib, status (docs/validation.md says what each column means);
///   vTrain table: gpus, global_batch, micro_batch, hidden, heads, layers, seq_len, tp, dp, pp, iteration_ms;
///     GPTs on nodes of 8 A100 under Megatron-DeepSpeed, 1F1B; recompute by what the times say: none on one
///     node, full on more.
/// A step's time is step_time_s, else follows from tokens/s, else from TFLOP/s by the stated count. Rows that
/// lack something, that their own source disowns or that hold what is not modelled are left out with their
/// reason. RequestError, with the line, for what is no such table; at most 100,000 rows of 64 MiB are read.
Measurements parse_measurements(std::string_view text, const std::string& source);
Measurements read_measurements(const std::filesystem::path& file);

/// Indices into a list of measurements.
struct RowsOf {
  std::string key;
  std::vector<std::size_t> rows;
};
/// All rows by the key that `key` gives them, in order of first appearance.
std::vector<RowsOf> rows_by(const std::vector<Measurement>& list,
                            const std::function<std::string(const Measurement&)>& key);

}  // namespace ndmesh::plan
