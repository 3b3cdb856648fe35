#include "ndmesh/plan/profile/memory_profiles.h"

namespace ndmesh::plan {
namespace {

constexpr std::int64_t mib = std::int64_t{1} << 20;

/// Checked to the byte against the runtime's own counter.
MemoryProfile ndmesh_profile() {
  return {.keeps_sharded_copy = false,
          .cuts_rows = true,
          .alignment = 32,
          .allocation = 64,
          .hidden_in_backward = -2,
          .selective = Selective::cheap,
          .chunks_loss = true,
          .ends_stay_gathered = true,
          .reduced_units = 2,
          .inputs_of_step = true,
          .accumulates_in_place = false,
          .received_messages = 1,
          .sent_messages = 2};
}

/// Megatron-Core with Transformer Engine: fused ops, gradients accumulated in float32 by the weight-gradient
/// product, distributed optimizer (6 + 12/d bytes a parameter).
MemoryProfile megatron_profile() {
  return on_cuda({.vocabulary_multiple = 128,
                  .fp8_inputs = true,
                  .selective = Selective::attention_core,
                  .dummy_weight_gradients = true,
                  .fragmentation = 0.3});
}

/// FSDP2: float32 shards, gathered in bfloat16, reduced in float32; eager loss on float32 logits.
MemoryProfile torchtitan_profile() {
  return on_cuda({.working_copy = false,
                  .frees_gradients = true,
                  .cuts_rows = true,
                  .unsynced = Unsynced::pipeline,
                  .saves_gathered_input = true,
                  .selective = Selective::alternate_products,
                  .logits_in_compute = 0,
                  .logits_wide = 3,
                  .wide_reduction = true,
                  .accumulates_in_place = false,
                  .fragmentation = 0.03});
}

/// ZeRO with gradients in the compute dtype: 16 bytes a parameter in all.
MemoryProfile deepspeed_profile() {
  return on_cuda({.wide_gradients = false,
                  .logits_wide = 2,
                  .most_gathered = 1'000'000'000,
                  .accumulates_in_place = false,
                  .bucket_bytes = 2'000'000'000,
                  .fragmentation = 0.2});
}

/// FSDP2 under Transformers' own model code: nothing fused but attention.
MemoryProfile accelerate_profile() {
  return on_cuda({.working_copy = false,
                  .frees_gradients = true,
                  .cuts_rows = true,
                  .unsynced = Unsynced::always,
                  .fused_norms = false,
                  .fused_activation = false,
                  .logits_wide = 3,
                  .accumulates_in_place = false,
                  .fragmentation = 0.2});
}

}  // namespace

MemoryProfile on_cuda(MemoryProfile profile) {
  profile.workspace = 64 * mib;
  profile.context = 512 * mib;
  profile.communicator = 256 * mib;
  return profile;
}

MemoryProfile memory_profile(Runtime runtime) {
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
