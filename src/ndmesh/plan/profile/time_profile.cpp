#include "ndmesh/plan/profile/time_profile.h"

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

}  // namespace

TimeProfile time_profile(Runtime runtime) {
  switch (runtime) {
    case Runtime::ndmesh:
      return ndmesh_profile();
    case Runtime::megatron:
      return megatron_profile();
    case Runtime::torchtitan:
      return torchtitan_profile();
    case Runtime::deepspeed:
      return deepspeed_profile();
    case Runtime::accelerate:
      break;
  }
  return accelerate_profile();
}

}  // namespace ndmesh::plan
