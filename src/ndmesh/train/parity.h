#pragma once

#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "ndmesh/job/job.h"

namespace ndmesh::train {

/// What "equal" means, by dtype: the one home of tolerances.
struct Tolerance {
  double loss = 0;  ///< relative, at every step
  double gradient =
      0;  ///< largest difference of a parameter's gradient over its largest element, at every step
  /// bfloat16 only: the distance to the float32 run (relative L2 over all parameters; relative for the loss)
  /// may be this many times the single-rank bfloat16 run's; for the loss, `loss` is then a floor.
  double ratio = 0;
};
Tolerance tolerance_of(DType dtype);

/// A gradient below this share of the step's largest element over all parameters is compared with that
/// instead of its own largest element: some gradients are zero in exact arithmetic, and noise has no relative
/// error.
inline constexpr double gradient_floor = 1e-4;

/// Losses and full gradients (before clipping) of every step of one run.
struct Trajectory {
  std::vector<double> losses;
  std::vector<std::map<std::string, at::Tensor>> gradients;
};

/// Trains `job` for its train.steps on its mesh and remembers everything: for models that fit in memory
/// several times.
Trajectory record_trajectory(const job::Job& job);

struct Difference {
  double loss = 0;      ///< largest over steps
  double gradient = 0;  ///< largest over steps and parameters (bfloat16: relative L2 distance)
  std::string worst_parameter;
};
/// Element-wise comparison (float64, float32).
Difference largest_difference(const Trajectory& reference, const Trajectory& run);
/// Relative L2 distance over all parameters, the parameter that adds most to it, and relative loss difference, by
/// step (bfloat16).
std::vector<Difference> distances(const Trajectory& reference, const Trajectory& run);

struct MeshParity {
  std::string mesh;
  double loss_error = 0;
  double gradient_error = 0;
  std::string worst_parameter;
  bool held = false;
};

/// Runs the same steps on one rank without levers that save memory, and on every mesh as the job says, and compares
/// each with the one-rank run by tolerance_of(dtype); in bfloat16 with a float32 one-rank run, against the one-rank
/// bfloat16 run's distance. RequestError, before anything runs, for a mesh on which the job cannot run. `said` is told
/// what runs.
std::vector<MeshParity> check_parity(const job::Job& job, const std::vector<mesh::MeshSizes>& meshes,
                                     const std::function<void(const std::string&)>& said = {});

}  // namespace ndmesh::train
