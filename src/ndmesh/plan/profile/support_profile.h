#pragma once

#include <vector>

#include "ndmesh/job/job.h"
#include "ndmesh/mesh/rules.h"
#include "ndmesh/plan/profile/runtime.h"
#include "ndmesh/schedule/schedule.h"

namespace ndmesh::plan {

/// Which meshes, schedules and levers one runtime supports. What a list leaves out, a plan for that runtime
/// neither takes nor searches.
struct SupportProfile {
  mesh::RuntimeLimits limits;
  std::vector<schedule::Kind> schedules;
  bool schedule_files = false;             ///< runs lists of actions as well
  std::vector<job::ContextKind> contexts;  ///< the usual one first
  std::vector<job::Recompute::Policy> recompute;
  std::vector<job::Offload> offload;
  /// Policies under which what blocks keep may wait in host memory (recompute.offload); none: not planned for it.
  std::vector<job::Recompute::Policy> offload_activations = {};
  std::vector<job::OptimizerName> optimizers;
  bool keeps_gathered = true;  ///< zero 3 may keep parameters gathered until backward (shard.reshard false)
  bool fp8_products = true;
  bool adapters = true;
};

/// As documented and checked by
/// the frameworks themselves: Megatron Core (arguments.py, transformer_config.py), torchtitan v0.2
/// (parallelism config), DeepSpeed (pipe engine, ZeRO, AutoTP and AutoEP asserts), Accelerate
/// (ParallelismConfig).
SupportProfile support_of(Runtime runtime);

}  // namespace ndmesh::plan
