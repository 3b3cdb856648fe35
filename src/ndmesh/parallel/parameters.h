#pragma once

#include <torch/nn/module.h>

#include <span>
#include <string>
#include <vector>

#include "ndmesh/layout/layout.h"

namespace ndmesh::parallel {

struct NamedParameter {
  std::string name;
  at::Tensor tensor;
};

/// The parameters of `modules`, each tensor once (a tied one under its first name): those that require a gradient, then
/// the frozen ones, each in order of registration. RunError when there is none, dtypes are mixed, or one is not a
/// floating CPU tensor.
std::vector<NamedParameter> distinct_parameters(const std::vector<const torch::nn::Module*>& modules);

/// How many of them, the first, are trained.
std::size_t trained_count(const std::vector<NamedParameter>& parameters);

using Shapes = std::vector<std::vector<std::int64_t>>;
Shapes shapes_of(std::span<const NamedParameter> parameters);

/// std::logic_error unless `shape`, of what `rank` holds of a parameter, is what its layout says.
void check_owned_shape(const std::string& name, const layout::Shape& shape,
                       const layout::TensorLayout& layout, std::int64_t rank);

/// Where each parameter starts in one flat storage: at multiples of 32 elements (64 bytes in bfloat16), so
/// that flat storages of different dtypes have the same plan.
struct FlatPlan {
  std::vector<std::int64_t> offsets;  ///< in elements
  std::int64_t elements = 0;
};
FlatPlan plan_flat(const Shapes& shapes);

/// Views of the given shapes into a flat tensor that plan_flat has planned.
std::vector<at::Tensor> views_of(const at::Tensor& flat, const Shapes& shapes);

/// One uninitialised flat tensor, and views of the given shapes into it.
struct Flat {
  at::Tensor whole;
  std::vector<at::Tensor> views;
};
Flat make_flat(const Shapes& shapes, at::ScalarType dtype);

}  // namespace ndmesh::parallel
