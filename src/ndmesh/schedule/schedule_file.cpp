#include "ndmesh/schedule/schedule_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "ndmesh/base/error.h"
#include "ndmesh/base/file.h"
#include "ndmesh/base/text.h"
#include "ndmesh/schedule/order.h"

namespace ndmesh::schedule {
namespace {

constexpr std::string_view blanks = " \t\r";

/// The words of a line, without what follows `#`.
std::vector<std::string_view> words_of(std::string_view line) {
  line = line.substr(0, line.find('#'));
  std::vector<std::string_view> words;
  for (std::size_t at = line.find_first_not_of(blanks); at != std::string_view::npos;) {
    const std::size_t end = std::min(line.find_first_of(blanks, at), line.size());
    words.push_back(line.substr(at, end - at));
    at = line.find_first_not_of(blanks, end);
  }
  return words;
}

std::optional<ActionKind> kind_of(char letter) {
  switch (letter) {
    case 'F':
      return ActionKind::forward;
    case 'B':
      return ActionKind::backward;
    case 'I':
      return ActionKind::input_grad;
    case 'W':
      return ActionKind::weight_grad;
    default:
      return std::nullopt;
  }
}

/// "F0.12"; nothing for any other word.
std::optional<Action> action_of(std::string_view word) {
  const auto kind = word.empty() ? std::nullopt : kind_of(word.front());
  if (!kind) return std::nullopt;
  Action action = {*kind, 0, 0};
  const char* const end = word.data() + word.size();
  const auto chunk = std::from_chars(word.data() + 1, end, action.chunk);
  if (chunk.ec != std::errc() || chunk.ptr == end || *chunk.ptr != '.') return std::nullopt;
  const auto micro_batch = std::from_chars(chunk.ptr + 1, end, action.micro_batch);
  if (micro_batch.ec != std::errc() || micro_batch.ptr != end) return std::nullopt;
  const bool in_range = action.chunk >= 0 && action.chunk < max_passes && action.micro_batch >= 0 &&
                        action.micro_batch < max_passes;
  return in_range ? std::optional(action) : std::nullopt;
}

struct Lists {
  bool v_shaped = false;
  std::vector<std::vector<Action>> ranks;
};

Lists lists_of(std::string_view text, const std::string& source) {
  Lists lists;
  Problems problems;
  std::int64_t number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const auto words = words_of(text.substr(begin, end - begin));
    begin = end + 1;
    ++number;
    if (words.size() == 1 && words[0] == "v") lists.v_shaped = true;
    if (words.empty() || words[0] == "v") continue;
    std::vector<Action>& actions = lists.ranks.emplace_back();
    for (const std::string_view word : words) {
      if (const auto action = action_of(word)) {
        actions.push_back(*action);
      } else {
        problems.add(
            fmt::format("{}, line {}: {} is no action; allowed: F, B, I or W and chunk.micro-batch, as "
                        "in F0.1",
                        source, number, shown(word)));
        break;  // one a line
      }
    }
  }
  if (lists.ranks.empty()) problems.add(source + ": no rank has actions");
  problems.raise();
  return lists;
}

Shape shape_of(const Lists& lists) {
  Shape shape = {Kind::gpipe, static_cast<std::int64_t>(lists.ranks.size()), 1, 1};
  for (const auto& actions : lists.ranks) {
    for (const Action& action : actions) {
      shape.chunks = std::max<std::int64_t>(shape.chunks, action.chunk + 1);
      shape.micro_batches = std::max<std::int64_t>(shape.micro_batches, action.micro_batch + 1);
    }
  }
  if (shape.chunks > 1) shape.kind = lists.v_shaped ? Kind::zb_v : Kind::interleaved;
  return shape;
}

}  // namespace

Schedule parse_schedule(std::string_view text, const std::string& source) {
  const Lists lists = lists_of(text, source);
  const Shape shape = shape_of(lists);
  Problems problems;
  problems.add_all(size_problems(shape));
  problems.raise();
  Schedule schedule = {shape, with_messages(shape, lists.ranks)};
  for (std::vector<Action>& rank : schedule.ranks) rank.push_back({ActionKind::optimizer, 0, 0});
  return schedule;
}

Schedule read_schedule(const std::filesystem::path& file) {
  constexpr std::int64_t most_bytes = std::int64_t{1} << 24;
  return parse_schedule(read_file(file, most_bytes), file.string());
}

std::int64_t most_in_flight(const Schedule& schedule, std::int64_t rank) {
  const std::vector<std::int64_t> ones(static_cast<std::size_t>(schedule.shape.chunks), 1);
  return most_in_flight(schedule, rank, ones);
}

std::int64_t most_in_flight(const Schedule& schedule, std::int64_t rank,
                            std::span<const std::int64_t> weights) {
  std::int64_t now = 0, most = 0;
  for (const Action& action : schedule.ranks[static_cast<std::size_t>(rank)]) {
    const std::int64_t weight = weights[static_cast<std::size_t>(action.chunk)];
    if (action.kind == ActionKind::forward) most = std::max(most, now += weight);
    if (action.kind == ActionKind::backward || action.kind == ActionKind::weight_grad) now -= weight;
  }
  return most;
}

}  // namespace ndmesh::schedule
