#include <fmt/format.h>

#include "ndmesh/schedule/interleaving.h"
#include "ndmesh/schedule/order.h"

namespace ndmesh::schedule {
namespace {

/// "10 or 12": the counts nearest to `micro_batches` that interleaved chunks can deal out.
std::string nearest_counts(std::int64_t micro_batches, std::int64_t ranks) {
  const auto fits = [ranks](std::int64_t count) { return interleaves(count, ranks, Interleaving::flexible); };
  std::int64_t lower = micro_batches, upper = micro_batches;
  while (!fits(lower)) --lower;
  while (!fits(upper)) ++upper;
  return fmt::format("{} or {}", lower, upper);
}

void check_chunks(const Shape& shape, std::vector<std::string>& problems) {
  const auto add = [&](std::string_view allowed) {
    problems.push_back(
        fmt::format("pipeline.chunks: {} with pipeline.schedule {} on mesh.pp_size {} is not allowed; {}",
                    shape.chunks, name_of(shape.kind), shape.ranks, allowed));
  };
  if (shape.ranks == 1) {
    if (shape.chunks != 1) add("one rank has 1 chunk");
  } else if (shape.kind == Kind::interleaved) {
    if (shape.chunks < 2) add("it interleaves 2 chunks or more of each rank; with 1 chunk take 1f1b");
  } else if (shape.kind == Kind::zb_v) {
    if (shape.chunks != 2) add("each rank has 2 chunks, one on the way down and one on the way up");
  } else if (shape.chunks != 1) {
    add("each rank has 1 chunk; interleaved takes more");
  }
}

void check_sizes(const Shape& shape, std::vector<std::string>& problems) {
  const auto at_least_one = [&](std::string_view key, std::int64_t size) {
    if (size < 1) problems.push_back(fmt::format("{}: {} is not allowed; the least is 1", key, size));
  };
  at_least_one("mesh.pp_size", shape.ranks);
  at_least_one("pipeline.chunks", shape.chunks);
  at_least_one("micro-batches", shape.micro_batches);
  if (!problems.empty()) return;
  // Divided one after the other: the product may not fit.
  if (shape.ranks > max_passes / shape.chunks ||
      shape.micro_batches > max_passes / (shape.ranks * shape.chunks)) {
    problems.push_back(
        fmt::format("mesh.pp_size {} x pipeline.chunks {} x micro-batches {}: more than the {} passes that a "
                    "schedule may have; take fewer micro-batches (batch.micro larger) or more batch ranks",
                    shape.ranks, shape.chunks, shape.micro_batches, max_passes));
  }
}

}  // namespace

std::vector<std::string> size_problems(const Shape& shape) {
  std::vector<std::string> problems;
  check_sizes(shape, problems);
  if (problems.empty()) check_chunks(shape, problems);
  return problems;
}

std::vector<std::string> problems_of(const Shape& shape) {
  std::vector<std::string> problems;
  check_sizes(shape, problems);
  if (!problems.empty()) return problems;
  check_chunks(shape, problems);
  if (shape.kind == Kind::interleaved &&
      !interleaves(shape.micro_batches, shape.ranks, Interleaving::flexible)) {
    problems.push_back(
        fmt::format("pipeline.schedule interleaved: {} micro-batches cannot be dealt out to mesh.pp_size {} "
                    "in equal rounds of at least that many; nearest: {} micro-batches "
                    "(batch.global / (batch.micro x batch ranks))",
                    shape.micro_batches, shape.ranks, nearest_counts(shape.micro_batches, shape.ranks)));
  }
  return problems;
}

}  // namespace ndmesh::schedule
