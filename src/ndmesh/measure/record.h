#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "ndmesh/base/memory_category.h"
#include "ndmesh/job/job.h"
#include "ndmesh/measure/host_use.h"
#include "ndmesh/measure/pipeline_clock.h"
#include "ndmesh/measure/step_clock.h"

namespace ndmesh::measure {

/// One number over all ranks.
struct Spread {
  double min = 0;
  double median = 0;
  double max = 0;
  std::int64_t max_rank = 0;  ///< the first that has the maximum
};
/// `values` by rank, at least one.
Spread spread_of(const std::vector<double>& values);

/// One step as the record tells it. Seconds and bytes.
struct StepReport {
  std::int64_t step = 0;  ///< counted from 1
  double loss = 0;        ///< cross-entropy, mean over the valid tokens of the global batch
  double grad_norm = 0;   ///< before clipping
  double lr = 0;
  std::int64_t tokens = 0;           ///< valid targets of the global batch, counted once
  double seconds = 0;                ///< of the slowest rank
  double flops_per_token = 0;        ///< by model/config.h's convention
  std::optional<double> peak_flops;  ///< of all devices together; unknown for CPUs, and then there is no MFU
  StepTimes times;                   ///< of rank 0
  MemoryBytes memory;                ///< each category's own peak on the rank with the largest total peak
  MemoryBytes memory_at_peak;        ///< on that rank, what was live when the sum of categories was largest
  Spread memory_total;               ///< peak of the sum of categories, over ranks
  std::array<Spread, memory_category_count> memory_peaks;  ///< each category's own peak, over ranks
  HostUse host;
  std::optional<Bubble> bubble;  ///< of a pipeline
  Spread exposed;                ///< exposed seconds, over ranks
  std::int64_t peak_rss_bytes = 0;

  double tokens_per_second() const { return static_cast<double>(tokens) / seconds; }
  std::optional<double> mfu() const;
};

nlohmann::json to_json(const StepReport& report);
nlohmann::json to_json(const MemoryBytes& bytes);

/// Bytes of one rank.
struct RankMemory {
  MemoryBytes device;
  std::int64_t host = 0;
};

/// The first line of a record: what ran, on what, with what prediction.
nlohmann::json identity(const job::Job& job, const model::ModelSpec& model, const RankMemory& predicted);

/// The step as one line of fixed width for people.
std::string step_line(const StepReport& report, std::int64_t steps);

/// `predicted` beside `counted`, category by category, as a table for people.
std::string memory_table(const RankMemory& predicted, const RankMemory& counted);

/// record.jsonl of a run folder: JSON Lines, each flushed as it is written. One thread.
class Record {
 public:
  /// Makes the file anew. RunError when it cannot be written.
  explicit Record(const std::filesystem::path& file);
  void write(const nlohmann::json& line);

 private:
  std::filesystem::path file_;
  std::ofstream out_;
};

}  // namespace ndmesh::measure
