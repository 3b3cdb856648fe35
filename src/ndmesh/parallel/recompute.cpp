#include "ndmesh/parallel/recompute.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>

#include "ndmesh/base/error.h"
#include "ndmesh/nn/autograd.h"
#include "ndmesh/nn/ports.h"
#include "ndmesh/parallel/unit.h"

namespace ndmesh::parallel {
namespace {

using nn::Tensors;

bool trains(const torch::nn::Module& module) {
  const auto parameters = module.parameters();
  return std::any_of(parameters.begin(), parameters.end(),
                     [](const at::Tensor& p) { return p.requires_grad(); });
}

/// The gradient of the unit's input; its parameters get theirs in a backward pass of its own.
at::Tensor backward_again(const at::Tensor& x, bool wants_dx, const nn::Unit::Body& body,
                          const at::Tensor& dy) {
  const c10::AutoGradMode recorded(true);
  at::Tensor dx;
  const at::Tensor y = body(wants_dx ? nn::begin_graph(x, dx) : x.detach());
  if (y.requires_grad()) {
    torch::autograd::backward({y}, {dy});
  }
  return dx;
}

at::Tensor run_again_in_backward(const torch::nn::Module& module, const at::Tensor& x,
                                 const nn::Unit::Body& body) {
  if (!at::GradMode::is_enabled() || !(x.requires_grad() || trains(module))) {
    return body(x);
  }
  Tensors outputs;
  {
    const at::NoGradGuard nothing_recorded;
    outputs = {body(x)};
  }
  if (outputs[0].is_same(x)) {
    outputs[0] = x.detach();
  }
  // Parameters need their gradients even where the input needs none.
  const at::Tensor anchor = at::empty({0}).set_requires_grad(true);
  nn::attach("recompute", {x, anchor}, outputs, {x},
             [body](const Tensors& saved, const Tensors& grads, const nn::Needs& needs) -> Tensors {
               if (!grads[0].defined()) {
                 return Tensors(2);
               }
               return {backward_again(saved[0], needs(0), body, grads[0]), {}};
             });
  return outputs[0];
}

}  // namespace

void recompute(torch::nn::Module& module, Recomputed what) {
  nn::Unit& unit = as_unit(module, "recompute");
  if (unit.around) {
    throw RunError(fmt::format("recompute: module {} is recomputed already", module.name()));
  }
  if (what == Recomputed::all) {
    unit.around = [&module](const at::Tensor& x, const nn::Unit::Body& body) {
      return run_again_in_backward(module, x, body);
    };
  } else {
    unit.around = [](const at::Tensor& x, const nn::Unit::Body& body) {
      const nn::KeepLess less;
      return body(x);
    };
  }
}

void offload_activations(torch::nn::Module& module) {
  nn::Unit& unit = as_unit(module, "offload_activations");
  unit.around = [inner = std::move(unit.around)](const at::Tensor& x, const nn::Unit::Body& body) {
    const nn::KeepOnHost host;
    return inner ? inner(x, body) : body(x);
  };
}

}  // namespace ndmesh::parallel
