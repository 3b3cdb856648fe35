#include "ndmesh/parallel/parameters.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "ndmesh/base/error.h"
#include "ndmesh/base/integers.h"

namespace ndmesh::parallel {
namespace {

constexpr std::int64_t alignment = 32;  // elements

void check(const NamedParameter& parameter, const NamedParameter& first) {
  const at::Tensor& t = parameter.tensor;
  if (!t.is_floating_point() || !t.device().is_cpu()) {
    throw RunError(
        fmt::format("parameter {} is {} on {}: only floating-point parameters on the CPU can be laid out",
                    parameter.name, c10::toString(t.scalar_type()), t.device().str()));
  }
  if (t.scalar_type() != first.tensor.scalar_type()) {
    throw RunError(fmt::format("parameter {} is {} but {} is {}: one module is laid out in one dtype",
                               parameter.name, c10::toString(t.scalar_type()), first.name,
                               c10::toString(first.tensor.scalar_type())));
  }
}

bool is_trained(const NamedParameter& parameter) {
  return parameter.tensor.requires_grad();
}

}  // namespace

std::vector<NamedParameter> distinct_parameters(const std::vector<const torch::nn::Module*>& modules) {
  std::vector<NamedParameter> found;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const torch::nn::Module* module : modules) {
    bool has_parameters = false;
    for (const auto& item : module->named_parameters(/*recurse=*/true)) {
      has_parameters |= item.value().defined();
      if (item.value().defined() && seen.insert(item.value().unsafeGetTensorImpl()).second) {
        found.push_back({item.key(), item.value()});
        check(found.back(), found.front());
      }
    }
    if (!has_parameters) {
      throw RunError(fmt::format("module {} has no parameters to lay out", module->name()));
    }
  }
  std::stable_partition(found.begin(), found.end(), is_trained);
  return found;
}

std::size_t trained_count(const std::vector<NamedParameter>& parameters) {
  return static_cast<std::size_t>(std::count_if(parameters.begin(), parameters.end(), is_trained));
}

Shapes shapes_of(std::span<const NamedParameter> parameters) {
  Shapes shapes;
  for (const NamedParameter& p : parameters) {
    shapes.push_back(p.tensor.sizes().vec());
  }
  return shapes;
}

void check_owned_shape(const std::string& name, const layout::Shape& shape,
                       const layout::TensorLayout& layout, std::int64_t rank) {
  if (shape != layout.padded_local_shape(rank)) {
    throw std::logic_error(fmt::format("{}: rank {} holds [{}], its layout says [{}]", name, rank,
                                       fmt::join(shape, ", "),
                                       fmt::join(layout.padded_local_shape(rank), ", ")));
  }
}

FlatPlan plan_flat(const Shapes& shapes) {
  FlatPlan plan;
  for (const auto& shape : shapes) {
    plan.offsets.push_back(plan.elements);
    plan.elements += round_up(c10::multiply_integers(shape), alignment);
  }
  return plan;
}

std::vector<at::Tensor> views_of(const at::Tensor& flat, const Shapes& shapes) {
  const FlatPlan plan = plan_flat(shapes);
  std::vector<at::Tensor> views;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const std::int64_t elements = c10::multiply_integers(shapes[i]);
    views.push_back(flat.narrow(0, plan.offsets[i], elements).view(shapes[i]));
  }
  return views;
}

Flat make_flat(const Shapes& shapes, at::ScalarType dtype) {
  const FlatPlan plan = plan_flat(shapes);
  at::Tensor whole = at::empty({plan.elements}, at::TensorOptions().dtype(dtype));
  std::vector<at::Tensor> views = views_of(whole, shapes);
  return {std::move(whole), std::move(views)};
}

}  // namespace ndmesh::parallel
