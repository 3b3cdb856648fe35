#pragma once

#include <torch/nn/module.h>

#include <string>
#include <vector>

namespace ndmesh::parallel {

struct NamedParameter {
  std::string name;
  at::Tensor tensor;
};

/// The parameters of `module`, each tensor once (a tied one under its first name): those that require a gradient, then
/// the frozen ones, each in order of registration. RunError when there is none, dtypes are mixed, or one is not a
/// floating CPU tensor.
std::vector<NamedParameter> distinct_parameters(const torch::nn::Module& module);

/// How many of them, the first, are trained.
std::size_t trained_count(const std::vector<NamedParameter>& parameters);

/// Where each parameter starts in one flat storage: at multiples of 32 elements (64 bytes in bfloat16), so
/// that flat storages of different dtypes have the same plan.
struct FlatPlan {
  std::vector<std::int64_t> offsets;  ///< in elements
  std::int64_t elements = 0;
};
FlatPlan plan_flat(const std::vector<std::vector<std::int64_t>>& shapes);

/// Views of the given shapes into a flat tensor that plan_flat has planned.
std::vector<at::Tensor> views_of(const at::Tensor& flat,
                                 const std::vector<std::vector<std::int64_t>>& shapes);

/// One uninitialised flat tensor, and views of the given shapes into it.
struct Flat {
  at::Tensor whole;
  std::vector<at::Tensor> views;
};
Flat make_flat(const std::vector<std::vector<std::int64_t>>& shapes, at::ScalarType dtype);

}  // namespace ndmesh::parallel
