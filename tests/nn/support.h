#pragma once

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <vector>

#include "ndmesh/model/model_spec.h"
#include "ndmesh/nn/autograd.h"
#include "ndmesh/nn/parameter.h"

namespace ndmesh::nn::test {

/// Normal numbers that depend on shape and seed only.
inline at::Tensor random(at::IntArrayRef shape, at::ScalarType dtype = at::kDouble, std::uint64_t seed = 1) {
  auto generator = at::detail::createCPUGenerator(seed);
  return at::randn(shape, generator, at::kDouble).to(dtype);
}

inline at::Tensor leaf(const at::Tensor& t) {
  return t.detach().clone().set_requires_grad(true);
}

/// Largest difference relative to the largest element of `right`.
inline double distance(const at::Tensor& left, const at::Tensor& right) {
  const at::Tensor l = left.detach().to(at::kDouble);
  const at::Tensor r = right.detach().to(at::kDouble);
  if (l.sizes() != r.sizes() || l.isnan().any().item<bool>() || r.isnan().any().item<bool>()) {
    return std::numeric_limits<double>::infinity();
  }
  const double largest = r.abs().max().item<double>();
  return (l - r).abs().max().item<double>() / (largest > 0 ? largest : 1.0);
}

/// How far a result may be from the float64 composite: rounding of inputs is not counted, that of results is.
inline double tolerance(at::ScalarType dtype) {
  return dtype == at::kDouble ? 1e-12 : dtype == at::kFloat ? 3e-6 : 1.2e-2;
}

using Operator = std::function<Tensors(const Tensors&)>;

/// Runs `op` and `composite` on the same inputs, the composite in float64, sends the same random gradients
/// back, and expects equal outputs and input gradients.
inline void expect_equal(const Operator& op, const Operator& composite, const Tensors& values,
                         at::ScalarType dtype) {
  Tensors inputs;
  Tensors wide_inputs;
  for (const at::Tensor& value : values) {
    inputs.push_back(leaf(value.to(dtype)));
    wide_inputs.push_back(leaf(inputs.back().to(at::kDouble)));
  }
  const Tensors out = op(inputs);
  const Tensors expected = composite(wide_inputs);
  ASSERT_EQ(out.size(), expected.size());
  Tensors grads;
  Tensors wide_grads;
  for (std::size_t i = 0; i < out.size(); ++i) {
    EXPECT_LT(distance(out[i], expected[i]), tolerance(dtype)) << "output " << i;
    grads.push_back(random(out[i].sizes(), at::kDouble, 100 + i).to(out[i].scalar_type()));
    wide_grads.push_back(grads.back().to(at::kDouble));
  }
  torch::autograd::backward(out, grads);
  torch::autograd::backward(expected, wide_grads);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    ASSERT_TRUE(inputs[i].grad().defined()) << "input " << i;
    EXPECT_EQ(inputs[i].grad().scalar_type(), dtype);
    EXPECT_LT(distance(inputs[i].grad(), wide_inputs[i].grad()), tolerance(dtype)) << "gradient " << i;
  }
}

inline const std::vector<at::ScalarType> all_dtypes = {at::kDouble, at::kFloat, at::kBFloat16};

}  // namespace ndmesh::nn::test
