#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ndmesh::plan {

struct CsvRecord {
  std::int64_t line = 0;  ///< where it begins, from 1
  std::vector<std::string> cells;
};

/// A table with its columns found by name.
struct CsvTable {
  std::vector<std::string> columns;
  std::vector<CsvRecord> records;  ///< each with as many cells as there are columns

  std::optional<std::size_t> find(std::string_view column) const;
};

struct CsvLimits {
  std::size_t columns = 1'000;
  std::size_t records = 1'000'000;
  std::size_t cell_bytes = 100'000;
};

/// Reads a table of RFC 4180 (commas; quotes double inside quotes; \n or \r\n; a leading byte order mark and
/// blank lines are skipped) whose first line names the columns. `text` may hold anything: RequestError with
/// `source` and the line for a quote that is never closed or stands inside a bare cell, a record with another
/// number of cells, a zero byte, a column without name or named twice, no column at all, and what exceeds
/// `limits`.
CsvTable parse_csv(std::string_view text, const std::string& source, const CsvLimits& limits = {});

}  // namespace ndmesh::plan
