#pragma once

#include <cstdint>
#include <ostream>
#include <random>
#include <vector>

#include "ndmesh/schedule/simulate.h"

namespace ndmesh::schedule {

constexpr Kind all_kinds[] = {Kind::gpipe, Kind::one_f_one_b, Kind::interleaved, Kind::zb_h1, Kind::zb_v};

inline void PrintTo(const Shape& shape, std::ostream* out) {
  *out << name_of(shape.kind) << " ranks " << shape.ranks << " chunks " << shape.chunks << " micro-batches "
       << shape.micro_batches;
}

/// Every legal shape of up to so many ranks and micro-batches, 2 and 3 chunks where there are several.
inline std::vector<Shape> small_shapes(std::int64_t most_ranks, std::int64_t most_micro_batches) {
  std::vector<Shape> shapes;
  for (const Kind kind : all_kinds) {
    for (std::int64_t ranks = 1; ranks <= most_ranks; ++ranks) {
      for (std::int64_t chunks = 1; chunks <= 3; ++chunks) {
        for (std::int64_t count = 1; count <= most_micro_batches; ++count) {
          const Shape shape = {kind, ranks, chunks, count};
          if (problems_of(shape).empty()) shapes.push_back(shape);
        }
      }
    }
  }
  return shapes;
}

inline std::vector<StageSeconds> random_stages(const Shape& shape, std::mt19937& random) {
  std::uniform_real_distribution<double> seconds(0.0, 1.0);
  std::vector<StageSeconds> stages;
  for (std::int64_t stage = 0; stage < shape.stages(); ++stage)
    stages.push_back({seconds(random), seconds(random), seconds(random), seconds(random) / 2});
  return stages;
}

inline std::vector<StageSeconds> equal_stages(const Shape& shape, const StageSeconds& seconds) {
  return std::vector<StageSeconds>(static_cast<std::size_t>(shape.stages()), seconds);
}

}  // namespace ndmesh::schedule
