#pragma once

#include <string>

#include "ndmesh/model/config.h"
#include "ndmesh/plan/memory/training_memory.h"

namespace ndmesh::plan::test {

constexpr double gib = 1024.0 * 1024.0 * 1024.0;

/// A problem of `model` under `runtime`, bfloat16 and AdamW, on a device of 80 GiB.
inline Problem problem_of(const model::ModelSpec& model, const std::string& runtime,
                          std::int64_t seq_len = 4096) {
  Problem problem;
  problem.model = model;
  problem.profile = profile(runtime);
  problem.seq_len = seq_len;
  problem.global_batch = 64;
  problem.cluster.usable_bytes = std::int64_t{80} << 30;
  problem.headroom = 0;
  return problem;
}

inline Candidate candidate_on(const mesh::MeshSizes& sizes, std::int64_t zero = 0) {
  Candidate candidate;
  candidate.mesh = sizes;
  candidate.zero = zero;
  return candidate;
}

inline std::int64_t states_of(const MemoryBytes& bytes) {
  return bytes[MemoryCategory::parameters] + bytes[MemoryCategory::master_weights] +
         bytes[MemoryCategory::gradients] + bytes[MemoryCategory::optimizer];
}

}  // namespace ndmesh::plan::test
