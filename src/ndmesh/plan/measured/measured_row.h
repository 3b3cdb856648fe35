#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "ndmesh/base/error.h"
#include "ndmesh/base/text.h"
#include "ndmesh/plan/measured/csv.h"

namespace ndmesh::plan {

/// The cells of one measurement by column name. A column that the table has not is an empty cell. What a row
/// lacks is gathered in `problems`, so that its reason to be left out names everything at once. Lives no
/// longer than table and record.
class MeasuredRow {
 public:
  MeasuredRow(const CsvTable& table, const CsvRecord& record) : table_(table), record_(record) {}

  std::int64_t line() const { return record_.line; }
  /// Spaces around it are cut.
  std::string_view text(std::string_view column) const;
  bool has(std::string_view column) const { return !text(column).empty(); }
  /// Whether the column `notes` says `words`, upper and lower case alike.
  bool noted(std::string_view words) const;

  /// A whole number from `least` to 10^7; nothing when the cell is empty or, which is a problem, holds
  /// something else.
  std::optional<std::int64_t> whole(std::string_view column, std::int64_t least = 1) const;
  /// Likewise, and an empty cell is a problem too; 1 stands for a number that is not there.
  std::int64_t needed(std::string_view column) const;
  /// A finite number above 0, at most 10^9, likewise.
  std::optional<double> positive(std::string_view column) const;
  bool flag(std::string_view column) const { return text(column) == "1"; }

  /// Filled by the readers above; `mutable` so that they can be used in expressions.
  Problems& problems() const { return problems_; }

 private:
  const CsvTable& table_;
  const CsvRecord& record_;
  mutable Problems problems_;
};

bool contains(std::string_view text, std::string_view part);
bool is_digit(char c);
/// The whole number right before the first `word` in `text`, as in "4 microbatches", or right behind it, as
/// in "expert TP 4".
std::optional<std::int64_t> number_before(std::string_view text, std::string_view word);
std::optional<std::int64_t> number_behind(std::string_view text, std::string_view word);

}  // namespace ndmesh::plan
