#include "ndmesh/plan/measured/csv.h"

#include <fmt/format.h>

#include <algorithm>

#include "ndmesh/base/error.h"
#include "ndmesh/base/text.h"

namespace ndmesh::plan {
namespace {

class Parser {
 public:
  Parser(std::string_view text, const std::string& source, const CsvLimits& limits)
      : text_(text), source_(source), limits_(limits) {
    constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";
    if (text_.starts_with(byte_order_mark)) text_.remove_prefix(byte_order_mark.size());
  }

  /// The next record, blank lines skipped; no cells at the end of the text.
  CsvRecord record() {
    while (at_line_end() && position_ < text_.size()) end_line();
    CsvRecord result{line_, {}};
    if (position_ == text_.size()) return result;
    while (true) {
      result.cells.push_back(cell());
      if (result.cells.size() > limits_.columns) {
        refuse(result.line, fmt::format("has more than {} cells", limits_.columns));
      }
      if (position_ == text_.size() || text_[position_] != ',') break;
      ++position_;
    }
    if (position_ < text_.size()) end_line();
    return result;
  }

  [[noreturn]] void refuse(std::int64_t line, const std::string& problem) const {
    throw RequestError(fmt::format("{}: line {} {}", source_, line, problem));
  }

 private:
  bool at_line_end() const {
    return position_ == text_.size() || text_[position_] == '\n' || text_.substr(position_, 2) == "\r\n";
  }

  void end_line() {
    position_ += text_[position_] == '\r' ? 2 : 1;
    ++line_;
  }

  std::string cell() {
    const std::string value =
        position_ < text_.size() && text_[position_] == '"' ? quoted_cell() : bare_cell();
    if (value.size() > limits_.cell_bytes) {
      refuse(line_, fmt::format("has a cell of more than {} bytes", limits_.cell_bytes));
    }
    if (value.find('\0') != std::string::npos) refuse(line_, "holds a zero byte: is this a text file?");
    return value;
  }

  std::string bare_cell() {
    const std::size_t start = position_;
    while (!at_line_end() && text_[position_] != ',') {
      if (text_[position_] == '"') refuse(line_, "has a quote inside a cell that does not begin with one");
      ++position_;
    }
    return std::string(text_.substr(start, position_ - start));
  }

  std::string quoted_cell() {
    const std::int64_t opened = line_;
    std::string value;
    for (++position_; position_ < text_.size(); ++position_) {
      const char c = text_[position_];
      if (c == '"') {
        if (text_.substr(position_ + 1, 1) != "\"") break;
        ++position_;
      }
      line_ += c == '\n';
      value += c;
    }
    if (position_ == text_.size()) refuse(opened, "opens a quote that is never closed");
    ++position_;
    if (!at_line_end() && text_[position_] != ',') refuse(line_, "goes on behind a closing quote");
    return value;
  }

  std::string_view text_;
  const std::string& source_;
  const CsvLimits& limits_;
  std::size_t position_ = 0;
  std::int64_t line_ = 1;
};

void check_columns(const std::vector<std::string>& columns, const Parser& parser, std::int64_t line) {
  if (columns.empty()) parser.refuse(1, "is missing: the table has no header");
  std::vector<std::string> sorted = columns;
  std::sort(sorted.begin(), sorted.end());
  if (sorted.front().empty()) parser.refuse(line, "has a column without a name");
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) parser.refuse(line, fmt::format("names the column {} twice", shown(*twice)));
}

}  // namespace

std::optional<std::size_t> CsvTable::find(std::string_view column) const {
  const auto found = std::find(columns.begin(), columns.end(), column);
  if (found == columns.end()) return std::nullopt;
  return static_cast<std::size_t>(found - columns.begin());
}

CsvTable parse_csv(std::string_view text, const std::string& source, const CsvLimits& limits) {
  Parser parser(text, source, limits);
  CsvRecord header = parser.record();
  check_columns(header.cells, parser, header.line);
  CsvTable table{std::move(header.cells), {}};
  for (CsvRecord record = parser.record(); !record.cells.empty(); record = parser.record()) {
    if (record.cells.size() != table.columns.size()) {
      parser.refuse(record.line, fmt::format("has {} cells; the header names {} columns", record.cells.size(),
                                             table.columns.size()));
    }
    if (table.records.size() == limits.records) {
      parser.refuse(record.line, fmt::format("is one too many: at most {} rows are read", limits.records));
    }
    table.records.push_back(std::move(record));
  }
  return table;
}

}  // namespace ndmesh::plan
