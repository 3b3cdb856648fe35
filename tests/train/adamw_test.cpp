#include "ndmesh/train/adamw.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <cmath>

namespace ndmesh::train {
namespace {

parallel::Trainable trainable(const at::Tensor& value, bool decayed) {
  const mesh::Mesh one{mesh::MeshSizes{}};
  return {{"w", layout::TensorLayout(value.sizes().vec(), {}, one), value}, at::zeros_like(value), decayed};
}

/// One element by the textbook, in double.
struct Textbook {
  double value, first = 0, second = 0;
  std::int64_t step = 0;
  void update(double gradient, double lr, const job::OptimizerSection& s, double decay) {
    step += 1;
    value -= lr * decay * value;
    first = s.beta1 * first + (1 - s.beta1) * gradient;
    second = s.beta2 * second + (1 - s.beta2) * gradient * gradient;
    const double m = first / (1 - std::pow(s.beta1, step));
    const double v = second / (1 - std::pow(s.beta2, step));
    value -= lr * m / (std::sqrt(v) + s.eps);
  }
};

TEST(AdamW, FollowsTheTextbookInFloat64AndDecaysMatricesOnly) {
  const auto options = at::TensorOptions().dtype(at::kDouble);
  std::vector<parallel::Trainable> list = {trainable(at::full({2, 2}, 0.7, options), true),
                                           trainable(at::full({3}, 0.7, options), false)};
  const job::OptimizerSection settings;
  AdamW optimizer(settings, list);
  Textbook matrix{0.7}, vector{0.7};
  for (int step = 0; step < 20; ++step) {
    const double gradient = std::sin(step);
    list[0].gradient.fill_(gradient);
    list[1].gradient.fill_(gradient);
    optimizer.step(0.01, 1.0);
    matrix.update(gradient, 0.01, settings, settings.weight_decay);
    vector.update(gradient, 0.01, settings, 0.0);
  }
  EXPECT_NEAR(list[0].value[1][1].item<double>(), matrix.value, 1e-14);
  EXPECT_NEAR(list[1].value[2].item<double>(), vector.value, 1e-14);
  EXPECT_EQ(optimizer.steps(), 20);
}

TEST(AdamW, GradientFactorIsAScaledGradient) {
  const auto options = at::TensorOptions().dtype(at::kDouble);
  std::vector<parallel::Trainable> list = {trainable(at::ones({4}, options), false)};
  AdamW optimizer({}, list);
  Textbook one{1.0};
  for (int step = 1; step <= 3; ++step) {
    list[0].gradient.fill_(step * 8.0);
    optimizer.step(0.1, 0.125);
    one.update(step, 0.1, {}, 0.0);
  }
  EXPECT_NEAR(list[0].value[0].item<double>(), one.value, 1e-13);
}

TEST(AdamW, FirstUpdateIsTheLearningRate) {
  std::vector<parallel::Trainable> list = {trainable(at::zeros({1}, at::kFloat), false)};
  job::OptimizerSection settings;
  settings.beta1 = 0.9;
  settings.beta2 = 0.999;
  AdamW optimizer(settings, list);
  list[0].gradient.fill_(0.3);
  optimizer.step(0.01, 1.0);
  EXPECT_NEAR(list[0].value.item<float>(), -0.01, 1e-7);
}

TEST(AdamW, SmallUpdatesAreNotLost) {
  // A bfloat16 weight of 1.0 would not move: 1 - 6e-4 rounds to 1.
  std::vector<parallel::Trainable> list = {trainable(at::ones({1}, at::kFloat), false)};
  AdamW optimizer({}, list);
  for (int step = 0; step < 100; ++step) {
    list[0].gradient.fill_(1.0);
    optimizer.step(6e-4, 1.0);
  }
  EXPECT_NEAR(list[0].value.item<float>(), 0.94, 1e-4);
  EXPECT_EQ(list[0].value.to(at::kBFloat16).item<float>(), 0.94140625F);
}

TEST(AdamW, PartsWithoutElementsAreFine) {
  std::vector<parallel::Trainable> list = {trainable(at::zeros({0, 4}, at::kFloat), true)};
  AdamW optimizer({}, list);
  optimizer.step(0.1, 1.0);
  EXPECT_EQ(optimizer.steps(), 1);
}

}  // namespace
}  // namespace ndmesh::train
