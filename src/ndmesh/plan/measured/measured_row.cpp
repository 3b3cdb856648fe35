#include "ndmesh/plan/measured/measured_row.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "ndmesh/base/text.h"

namespace ndmesh::plan {
namespace {

constexpr double most_whole = 1e7;
constexpr double most_positive = 1e9;

std::optional<double> number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole_text = error == std::errc() && end == text.data() + text.size();
  if (!whole_text || !std::isfinite(value)) return std::nullopt;
  return value;
}

/// The number that digits say, when it is no longer than a count may be.
std::optional<std::int64_t> digits(std::string_view text) {
  constexpr std::size_t longest = 7;
  std::int64_t value = 0;
  if (text.empty() || text.size() > longest) return std::nullopt;
  for (const char c : text) value = 10 * value + (c - '0');
  return value;
}

}  // namespace

std::string_view MeasuredRow::text(std::string_view column) const {
  const std::optional<std::size_t> index = table_.find(column);
  if (!index) return {};
  const std::string_view cell = record_.cells[*index];
  const std::size_t first = cell.find_first_not_of(' ');
  if (first == std::string_view::npos) return {};
  return cell.substr(first, cell.find_last_not_of(' ') - first + 1);
}

bool MeasuredRow::noted(std::string_view words) const {
  return contains(lower(text("notes")), lower(words));
}

std::optional<std::int64_t> MeasuredRow::whole(std::string_view column, std::int64_t least) const {
  if (!has(column)) return std::nullopt;
  const std::optional<double> value = number(text(column));
  if (!value || *value < static_cast<double>(least) || *value > most_whole || *value != std::floor(*value)) {
    problems_.add(
        fmt::format("{} is {}; allowed: a whole number from {} to 1e7", column, shown(text(column)), least));
    return std::nullopt;
  }
  return static_cast<std::int64_t>(*value);
}

std::optional<double> MeasuredRow::positive(std::string_view column) const {
  if (!has(column)) return std::nullopt;
  const std::optional<double> value = number(text(column));
  if (!value || *value <= 0 || *value > most_positive) {
    problems_.add(
        fmt::format("{} is {}; allowed: a number above 0, at most 1e9", column, shown(text(column))));
    return std::nullopt;
  }
  return value;
}

std::int64_t MeasuredRow::needed(std::string_view column) const {
  if (!has(column)) problems_.add(fmt::format("{} is missing", column));
  return whole(column).value_or(1);
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

std::optional<std::int64_t> number_before(std::string_view text, std::string_view word) {
  std::size_t end = text.find(word);
  if (end == std::string_view::npos) return std::nullopt;
  while (end > 0 && text[end - 1] == ' ') --end;
  std::size_t start = end;
  while (start > 0 && is_digit(text[start - 1])) --start;
  return digits(text.substr(start, end - start));
}

std::optional<std::int64_t> number_behind(std::string_view text, std::string_view word) {
  const std::size_t at = text.find(word);
  if (at == std::string_view::npos) return std::nullopt;
  std::size_t start = at + word.size();
  while (start < text.size() && text[start] == ' ') ++start;
  std::size_t end = start;
  while (end < text.size() && is_digit(text[end])) ++end;
  return digits(text.substr(start, end - start));
}

}  // namespace ndmesh::plan
