#include "ndmesh/train/parity.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <algorithm>
#include <cmath>

#include "ndmesh/base/error.h"
#include "ndmesh/train/run.h"
#include "ndmesh/train/trainer.h"

namespace ndmesh::train {
namespace {

job::Job on_mesh(job::Job job, const mesh::MeshSizes& sizes) {
  job.mesh = sizes;
  return job;
}

/// |a - b| relative to b; infinity where either is not a number, so that it can never pass.
double relative(double a, double b) {
  const double difference = std::abs(a - b) / std::max(std::abs(b), 1e-300);
  return std::isfinite(difference) ? difference : HUGE_VAL;
}

double largest_element(const at::Tensor& t) {
  const double largest = t.abs().max().item<double>();
  return std::isfinite(largest) ? largest : HUGE_VAL;
}

double largest_element(const std::map<std::string, at::Tensor>& gradients) {
  double largest = 0;
  for (const auto& [name, gradient] : gradients) {
    largest = std::max(largest, largest_element(gradient));
  }
  return largest;
}

void raise_to(Difference& worst, double error, const std::string& parameter) {
  if (!(error <= worst.gradient)) {
    worst.gradient = std::isfinite(error) ? error : HUGE_VAL;
    worst.worst_parameter = parameter;
  }
}

MeshParity judge(const std::string& mesh, const Difference& difference, const Tolerance& tolerance) {
  return {mesh, difference.loss, difference.gradient, difference.worst_parameter,
          difference.loss <= tolerance.loss && difference.gradient <= tolerance.gradient};
}

/// bfloat16: `run` and `single` (one rank) are both compared with the float32 reference, step by step.
MeshParity judge_by_ratio(const std::string& mesh, const Trajectory& reference, const Trajectory& single,
                          const Trajectory& run, const Tolerance& tolerance) {
  const auto of_single = distances(reference, single);
  const auto of_run = distances(reference, run);
  MeshParity result{mesh, 0, 0, {}, true};
  for (std::size_t s = 0; s < of_run.size(); ++s) {
    result.loss_error = std::max(result.loss_error, of_run[s].loss);
    if (of_run[s].gradient > result.gradient_error) {
      result.gradient_error = of_run[s].gradient;
      result.worst_parameter = of_run[s].worst_parameter;
    }
    result.held = result.held && of_run[s].gradient <= tolerance.ratio * of_single[s].gradient &&
                  of_run[s].loss <= std::max(tolerance.loss, tolerance.ratio * of_single[s].loss);
  }
  return result;
}

/// One rank without any lever that saves memory.
job::Job reference_of(const job::Job& job) {
  job::Job reference = on_mesh(job, {});
  reference.shard = {};
  reference.recompute = {};
  return reference;
}

}  // namespace

Tolerance tolerance_of(DType dtype) {
  switch (dtype) {
    case DType::float64:
      return {1e-12, 1e-10, 0};
    case DType::float32:
      return {1e-5, 1e-4, 0};
    default:
      return {1e-3, 0, 1.5};
  }
}

Trajectory record_trajectory(const job::Job& job) {
  const Inputs inputs = open_inputs(job);
  Trajectory trajectory;
  const mesh::Mesh mesh(job.mesh, job.mesh_order);
  comm::run_ranks(mesh, limits_of(job), [&](comm::Communicator& communicator) {
    const bool first = communicator.rank() == 0;
    Trainer trainer(inputs, communicator, [&](std::int64_t, parallel::ParallelModel& model) {
      std::map<std::string, at::Tensor> gradients;
      for (const std::string& name : model.trained_names()) {
        const at::Tensor full = model.gather_gradient(name);
        if (first) {
          gradients[name] = full.clone();
        }
      }
      if (first) {
        trajectory.gradients.push_back(std::move(gradients));
      }
    });
    for (std::int64_t step = 1; step <= job.train.steps; ++step) {
      const double loss = trainer.step().loss;
      if (first) {
        trajectory.losses.push_back(loss);
      }
    }
  });
  return trajectory;
}

Difference largest_difference(const Trajectory& reference, const Trajectory& run) {
  Difference worst;
  for (std::size_t s = 0; s < reference.losses.size(); ++s) {
    worst.loss =
        std::max(worst.loss, relative(run.losses[s], reference.losses[s]));  // never NaN: see relative
    const double floor = gradient_floor * largest_element(reference.gradients[s]);
    for (const auto& [name, expected] : reference.gradients[s]) {
      const double scale = std::max(largest_element(expected), floor);
      const double error = largest_element(run.gradients[s].at(name) - expected);
      raise_to(worst, scale > 0 ? error / scale : error, name);
    }
  }
  return worst;
}

std::vector<Difference> distances(const Trajectory& reference, const Trajectory& run) {
  std::vector<Difference> by_step;
  for (std::size_t s = 0; s < reference.losses.size(); ++s) {
    Difference step{relative(run.losses[s], reference.losses[s]), 0, {}};
    double sum = 0;
    double norm = 0;
    double largest = -1;
    for (const auto& [name, expected] : reference.gradients[s]) {
      const at::Tensor wide = expected.to(at::kDouble);
      const double squares = (run.gradients[s].at(name).to(at::kDouble) - wide).square().sum().item<double>();
      sum += squares;
      norm += wide.square().sum().item<double>();
      if (!(squares <= largest)) {
        largest = squares;
        step.worst_parameter = name;
      }
    }
    const double distance = std::sqrt(sum / norm);
    step.gradient = std::isfinite(distance) ? distance : HUGE_VAL;
    by_step.push_back(std::move(step));
  }
  return by_step;
}

std::vector<MeshParity> check_parity(const job::Job& job, const std::vector<mesh::MeshSizes>& meshes,
                                     const std::function<void(const std::string&)>& said) {
  const model::ModelSpec model = job::model_of(job);
  Problems problems;
  std::vector<mesh::MeshSizes> all = {mesh::MeshSizes{}};
  all.insert(all.end(), meshes.begin(), meshes.end());
  for (const mesh::MeshSizes& sizes : all) {
    try {
      job::check_trainable(on_mesh(job, sizes), model);
    } catch (const RequestError& error) {
      for (const std::string& problem : error.problems()) {
        problems.add("mesh " + sizes.name() + ": " + problem);
      }
    }
  }
  problems.raise();

  const auto run = [&](const job::Job& one, const std::string& what) {
    if (said) {
      said(what);
    }
    return record_trajectory(one);
  };
  const bool by_ratio = job.dtype == DType::bfloat16;
  const Trajectory single = run(reference_of(job), "mesh 1: reference");
  Trajectory wide;
  if (by_ratio) {
    job::Job float32_job = reference_of(job);
    float32_job.dtype = DType::float32;
    wide = run(float32_job, "mesh 1 in float32: reference");
  }
  std::vector<MeshParity> results;
  for (const mesh::MeshSizes& sizes : meshes) {
    const Trajectory candidate = run(on_mesh(job, sizes), "mesh " + sizes.name());
    const Tolerance tolerance = tolerance_of(job.dtype);
    results.push_back(by_ratio ? judge_by_ratio(sizes.name(), wide, single, candidate, tolerance)
                               : judge(sizes.name(), largest_difference(single, candidate), tolerance));
  }
  return results;
}

}  // namespace ndmesh::train
