#include "ndmesh/plan/serving/serving_weights.h"

#include "ndmesh/plan/integers.h"

namespace ndmesh::plan {
namespace {

constexpr std::int64_t block = 128;  // of fp8 blocks and int4 groups

std::int64_t blocks(std::int64_t extent) {
  return ceil_div(extent, block);
}

/// Half a byte each, rounded up.
std::int64_t nibbles(std::int64_t count) {
  return ceil_div(count, 2);
}

}  // namespace

std::int64_t stored_bytes(job::WeightFormat format, std::int64_t rows, std::int64_t columns) {
  const std::int64_t elements = capped_product(rows, columns);
  switch (format) {
    case job::WeightFormat::bfloat16:
      return capped_product(elements, 2);
    case job::WeightFormat::fp8:
      return capped_sum(elements, capped_product(blocks(rows), capped_product(blocks(columns), 4)));
    case job::WeightFormat::int8:
      return capped_sum(elements, capped_product(rows, 4));
    case job::WeightFormat::int4:
      break;
  }
  const std::int64_t groups = capped_product(rows, blocks(columns));
  return capped_sum(nibbles(elements), capped_sum(capped_product(groups, 2), nibbles(groups)));
}

bool is_quantised(const model::ParameterSpec& parameter) {
  switch (parameter.role) {
    case model::Role::embedding:
    case model::Role::positions:
    case model::Role::head:
    case model::Role::norm:
    case model::Role::head_norm:
    case model::Role::router:
    case model::Role::sinks:
      return false;
    default:
      return !parameter.bias;
  }
}

std::int64_t part_bytes(job::WeightFormat format, const model::ParameterSpec& parameter,
                        const layout::Part& part) {
  const bool matrix = is_quantised(parameter) && part.shape.size() > 1;
  if (!matrix) {
    const job::WeightFormat flat = is_quantised(parameter) ? format : job::WeightFormat::bfloat16;
    return stored_bytes(flat, 1, part.elements());
  }
  const std::int64_t columns = part.shape.at(static_cast<std::size_t>(parameter.in_dim()));
  const std::int64_t one = columns > 0 ? part.elements() / part.copies / columns : 0;
  return capped_product(stored_bytes(format, one, columns), part.copies);
}

}  // namespace ndmesh::plan
