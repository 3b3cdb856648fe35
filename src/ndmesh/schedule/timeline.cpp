#include <algorithm>
#include <cmath>

#include "ndmesh/schedule/simulate.h"

namespace ndmesh::schedule {
namespace {

char letter_of(const Interval& interval) {
  const char digit = static_cast<char>(interval.micro_batch % 10);
  if (interval.kind == ActionKind::forward) return static_cast<char>('0' + digit);
  return static_cast<char>((interval.kind == ActionKind::weight_grad ? 'A' : 'a') + digit);
}

}  // namespace

std::vector<std::string> timeline(const Simulation& simulation, const Shape& shape, std::int64_t width) {
  const std::int64_t columns = std::max<std::int64_t>(1, width);
  std::vector<std::string> lines(static_cast<std::size_t>(shape.ranks),
                                 std::string(static_cast<std::size_t>(columns), '.'));
  const double scale = simulation.seconds > 0 ? static_cast<double>(columns) / simulation.seconds : 0;
  for (const Interval& interval : simulation.intervals) {
    // The columns whose middle lies inside.
    std::int64_t column = std::lround(interval.start * scale);
    for (; column < columns && static_cast<double>(column) + 0.5 < interval.end * scale + 1e-9; ++column)
      lines[static_cast<std::size_t>(interval.rank)][static_cast<std::size_t>(column)] = letter_of(interval);
  }
  return lines;
}

}  // namespace ndmesh::schedule
