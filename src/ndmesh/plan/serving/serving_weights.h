#pragma once

#include <cstdint>

#include "ndmesh/job/serving_keys.h"
#include "ndmesh/layout/layout.h"

namespace ndmesh::plan {

/// Bytes of a matrix of `rows` outputs and `columns` inputs with the scales that its format needs. bfloat16:
/// 2 an element. fp8: 1, and a float32 for each block of 128 x 128 (DeepSeek-V3). int8: 1, and a float32 for
/// each row. int4: a half, and for each 128 inputs of a row a float16 scale and a 4-bit zero (GPTQ, AWQ).
/// Capped at most_bytes.
std::int64_t stored_bytes(job::WeightFormat format, std::int64_t rows, std::int64_t columns);

/// Whether low-bit formats apply: the matrices of the layers. Tables, head, norms, biases, router and sinks
/// stay bfloat16.
bool is_quantised(const model::ParameterSpec& parameter);

/// Bytes of the part of a parameter that a rank holds. Capped at most_bytes.
std::int64_t part_bytes(job::WeightFormat format, const model::ParameterSpec& parameter,
                        const layout::Part& part);

}  // namespace ndmesh::plan
