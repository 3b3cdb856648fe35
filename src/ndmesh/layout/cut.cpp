#include "ndmesh/layout/cut.h"

#include <algorithm>
#include <numeric>

namespace ndmesh::layout {
namespace {

/// Indices part.start .. part.start + part.size - 1 of the concatenation of `ranges`.
Ranges take(const Ranges& ranges, Range part) {
  Ranges result;
  std::int64_t before = 0;  // elements of earlier ranges
  for (const Range& range : ranges) {
    const std::int64_t first = std::clamp(part.start - before, std::int64_t{0}, range.size);
    const std::int64_t last = std::clamp(part.start + part.size - before, std::int64_t{0}, range.size);
    if (last > first) result.push_back({range.start + first, last - first});
    before += range.size;
  }
  if (result.empty()) result.push_back({ranges.back().start + ranges.back().size, 0});
  return result;
}

Range shared_part(std::int64_t size, std::int64_t units, std::int64_t parts, std::int64_t index) {
  const std::int64_t sharing = ranks_per_unit(units, parts);
  return split(size, parts / sharing, index / sharing);
}

Ranges cut_pieces(const Placement& placement, const Ranges& ranges, std::int64_t parts, std::int64_t index) {
  Ranges result;
  std::int64_t before = 0;  // elements of earlier segments
  for (const Placement::Segment& segment : placement.segments) {
    Range part = segment.units == 0 ? split(segment.size, parts, index)
                                    : shared_part(segment.size, segment.units, parts, index);
    part.start += before;
    if (part.size > 0) result.push_back(take(ranges, part).front());
    before += segment.size;
  }
  return result.empty() ? take(ranges, {before, 0}) : result;
}

Ranges cut_zigzag(const Ranges& ranges, std::int64_t parts, std::int64_t index) {
  Ranges result;
  for (const std::int64_t piece : {index, 2 * parts - 1 - index}) {
    const Range part = split(extent(ranges), 2 * parts, piece);
    if (part.size == 0) continue;
    const Ranges taken = take(ranges, part);
    result.insert(result.end(), taken.begin(), taken.end());
  }
  return result.empty() ? take(ranges, {extent(ranges), 0}) : result;
}

}  // namespace

std::int64_t extent(const Ranges& ranges) {
  std::int64_t total = 0;
  for (const Range& range : ranges) total += range.size;
  return total;
}

std::int64_t ranks_per_unit(std::int64_t units, std::int64_t parts) {
  return parts > units ? parts / units : 1;
}

Ranges cut(const Placement& placement, const Ranges& ranges, std::int64_t parts, std::int64_t index) {
  switch (placement.kind) {
    case Placement::Kind::replicate:
      return ranges;
    case Placement::Kind::shard:
      return take(ranges, split(extent(ranges), parts, index));
    case Placement::Kind::padded: {
      const std::int64_t multiple = std::lcm(placement.multiple, parts);
      const std::int64_t part = (extent(ranges) + multiple - 1) / multiple * (multiple / parts);
      return {{part * index, part}};
    }
    case Placement::Kind::pieces:
      return cut_pieces(placement, ranges, parts, index);
    case Placement::Kind::shared:
      return take(ranges, shared_part(extent(ranges), placement.units, parts, index));
    case Placement::Kind::zigzag:
      break;
  }
  return cut_zigzag(ranges, parts, index);
}

Ranges without_padding(const Ranges& ranges, std::int64_t size) {
  Ranges result;
  for (const Range& range : ranges) {
    const std::int64_t real = std::min(range.size, size - range.start);
    if (real > 0) result.push_back({range.start, real});
  }
  if (result.empty()) result.push_back({std::min(ranges.front().start, size), 0});
  return result;
}

}  // namespace ndmesh::layout
