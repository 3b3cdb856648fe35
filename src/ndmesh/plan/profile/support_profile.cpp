#include "ndmesh/plan/profile/support_profile.h"

namespace ndmesh::plan {
namespace {

using job::ContextKind;
using job::Offload;
using job::OptimizerName;
using schedule::Kind;
using Policy = job::Recompute::Policy;

/// What the contract of this project's own runtime allows; what of it runs today is job::check_trainable's to
/// say.
SupportProfile ndmesh_support() {
  return {
      .limits = {.name = "ndmesh"},
      .schedules = {Kind::gpipe, Kind::one_f_one_b, Kind::interleaved, Kind::zb_h1, Kind::zb_v},
      .schedule_files = true,
      .contexts = {ContextKind::ring, ContextKind::allgather, ContextKind::alltoall,
                   ContextKind::hierarchical},
      .recompute = {Policy::none, Policy::selective, Policy::full, Policy::every, Policy::budget},
      .offload = {Offload::none, Offload::optimizer, Offload::all},
      .offload_activations = {Policy::none, Policy::selective, Policy::full, Policy::every, Policy::budget},
      .optimizers = {OptimizerName::adamw, OptimizerName::sgd, OptimizerName::muon}};
}

/// Unequal stages are written as a pipeline layout; zero 2 and 3 are Megatron-FSDP's, without stages.
SupportProfile megatron_support() {
  return {.limits = {.name = "megatron", .cuts_unequally = false, .most_zero_staged = 1},
          .schedules = {Kind::one_f_one_b, Kind::interleaved},
          .contexts = {ContextKind::ring, ContextKind::alltoall, ContextKind::allgather,
                       ContextKind::hierarchical},
          .recompute = {Policy::none, Policy::selective, Policy::full, Policy::every},
          .offload = {Offload::none, Offload::optimizer},
          .optimizers = {OptimizerName::adamw, OptimizerName::sgd, OptimizerName::muon},
          .keeps_gathered = false};
}

SupportProfile torchtitan_support() {
  return {.limits = {.name = "torchtitan",
                     .shares_kv_heads = false,
                     .ties_over_stages = false,
                     .cuts_experts_freely = false},
          .schedules = {Kind::gpipe, Kind::one_f_one_b, Kind::interleaved, Kind::zb_v},
          .contexts = {ContextKind::allgather, ContextKind::ring},
          .recompute = {Policy::none, Policy::selective, Policy::full, Policy::every, Policy::budget},
          .offload = {Offload::none, Offload::all},
          .optimizers = {OptimizerName::adamw},
          .adapters = false};
}

/// Its cpu_checkpointing moves the inputs of blocks that are recomputed, and nothing else.
SupportProfile deepspeed_support() {
  return {.limits = {.name = "deepspeed",
                     .cuts_experts_freely = false,
                     .most_zero_staged = 1,
                     .most_zero_experts = 2},
          .schedules = {Kind::one_f_one_b},
          .contexts = {ContextKind::alltoall},
          .recompute = {Policy::none, Policy::full, Policy::every},
          .offload = {Offload::none, Offload::optimizer, Offload::all},
          .offload_activations = {Policy::full},
          .optimizers = {OptimizerName::adamw, OptimizerName::sgd, OptimizerName::muon},
          .keeps_gathered = false,
          .fp8_products = false};
}

SupportProfile accelerate_support() {
  return {.limits = {.name = "accelerate",
                     .has_pipeline = false,
                     .has_experts = false,
                     .replicates_unsharded = false},
          .schedules = {Kind::one_f_one_b},  // means nothing without stages
          .contexts = {ContextKind::allgather, ContextKind::ring},
          .recompute = {Policy::none, Policy::full},
          .offload = {Offload::none, Offload::all},
          .optimizers = {OptimizerName::adamw, OptimizerName::sgd}};
}

}  // namespace

SupportProfile support_of(Runtime runtime) {
  switch (runtime) {
    case Runtime::ndmesh:
      return ndmesh_support();
    case Runtime::megatron:
      return megatron_support();
    case Runtime::torchtitan:
      return torchtitan_support();
    case Runtime::deepspeed:
      return deepspeed_support();
    case Runtime::accelerate:
      break;
  }
  return accelerate_support();
}

}  // namespace ndmesh::plan
