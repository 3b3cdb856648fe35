#include "ndmesh/plan/time_profile.h"

#include <fmt/format.h>

#include <array>
#include <string>
#include <vector>

#include "ndmesh/base/error.h"
#include "ndmesh/base/nearest.h"
#include "ndmesh/base/text.h"

namespace ndmesh::plan {
namespace {

/// Eager libtorch: every elementwise op is a kernel; plain data parallelism overlaps, updates and gathers do
/// not.
TimeProfile ndmesh_profile() {
  TimeProfile profile;
  profile.elementwise_passes = 2;
  profile.loss_bytes = 40;
  profile.gradient_accumulation_fused = false;
  profile.overlap_parameters = false;
  profile.selective = {.attention = true, .elementwise = true, .products = 0};
  profile.balanced_experts = false;
  profile.reduce_each_micro_batch = true;
  return profile;
}

/// Megatron-Core with Transformer Engine and the distributed optimizer's overlaps on, as its recipes have
/// them.
TimeProfile megatron_profile() {
  TimeProfile profile;
  profile.attention = AttentionKernel::flash3;
  profile.vocabulary_multiple = 128;
  profile.dispatch_once = true;
  profile.selective = {.attention = true, .elementwise = false, .products = 0};
  return profile;
}

/// FSDP2 and torch.compile of each block.
TimeProfile torchtitan_profile() {
  TimeProfile profile;
  profile.loss_bytes = 24;
  profile.gradient_accumulation_fused = false;
  profile.selective = {.attention = false, .elementwise = true, .products = 0.5};
  profile.reduce_each_micro_batch = true;
  profile.overlap_parameters = false;
  return profile;
}

/// DeepSpeed's ZeRO under Transformers or Megatron-DeepSpeed.
TimeProfile deepspeed_profile() {
  TimeProfile profile;
  profile.elementwise_passes = 2;
  profile.loss_bytes = 40;
  profile.gradient_accumulation_fused = false;
  profile.gradient_bytes = 2;
  profile.selective = {.attention = true, .elementwise = true, .products = 0};
  profile.overlap_parameters = false;
  profile.overlap_tensor_backward = false;
  profile.reduce_each_micro_batch = true;
  profile.balanced_experts = false;
  return profile;
}

/// Hugging Face Accelerate: FSDP2 over eager Transformers.
TimeProfile accelerate_profile() {
  TimeProfile profile = torchtitan_profile();
  profile.elementwise_passes = 2;
  profile.loss_bytes = 40;
  profile.gradient_bytes = 2;
  profile.selective = {.attention = true, .elementwise = true, .products = 0};
  profile.balanced_experts = false;
  return profile;
}

struct Named {
  std::string_view name;
  TimeProfile (*make)();
};
constexpr std::array<Named, 5> profiles = {{{"ndmesh", ndmesh_profile},
                                            {"megatron", megatron_profile},
                                            {"torchtitan", torchtitan_profile},
                                            {"deepspeed", deepspeed_profile},
                                            {"accelerate", accelerate_profile}}};

}  // namespace

TimeProfile time_profile(std::string_view runtime) {
  std::vector<std::string> names;
  for (const Named& profile : profiles) {
    if (profile.name == runtime) {
      return profile.make();
    }
    names.emplace_back(profile.name);
  }
  throw RequestError(fmt::format("unknown runtime {}: choose one of {}{}", shown(runtime), join(names),
                                 did_you_mean(runtime, names)));
}

}  // namespace ndmesh::plan
