#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "ndmesh/base/dtype.h"
#include "ndmesh/plan/profile/memory_profile.h"
#include "ndmesh/plan/profile/support_profile.h"
#include "ndmesh/plan/profile/time_profile.h"

namespace ndmesh::plan {

/// Number formats of a training job: what products are computed in. The bytes of copies, gradients and states
/// follow from it and the runtime (MemoryProfile).
struct Precision {
  DType compute = DType::bfloat16;
  bool fp8_products = false;  ///< linear layers compute in 8 bits
  bool bf16_states = false;   ///< optimizer moments in bfloat16
  bool operator==(const Precision&) const = default;
};

/// How one runtime spends bytes and time. A plan is for a stated runtime.
struct Profile {
  std::string name;  ///< ndmesh, megatron, torchtitan, deepspeed, accelerate
  MemoryProfile memory;
  TimeProfile time;
  SupportProfile support;
};

/// RequestError with the list and the nearest.
Profile profile(std::string_view name);

}  // namespace ndmesh::plan
