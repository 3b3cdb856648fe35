#pragma once

#include <ATen/Functions.h>
#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ndmesh/comm/world.h"
#include "ndmesh/nn/ports.h"
#include "ndmesh/parallel/data_parallel.h"

/// A module as a user would write it, with awkward sizes, and what plain autograd says of it.
namespace ndmesh::test {

using at::Tensor;

/// tanh(x W^T + b), a unit of its own.
struct Layer : torch::nn::Module, nn::Unit {
  Layer(std::int64_t in, std::int64_t out, at::ScalarType dtype, double shift = 0) {
    const auto values = at::arange(in * out, at::TensorOptions().dtype(at::kDouble)).view({out, in});
    weight = register_parameter("weight", (values.sin() * 0.3 + shift).to(dtype));
    bias = register_parameter("bias", at::full({out}, 0.1 + shift, at::TensorOptions().dtype(dtype)));
  }
  Tensor forward(const Tensor& input) {
    return pass(input, [this](const Tensor& x) { return at::tanh(at::addmm(bias, x, weight.t())); });
  }
  Tensor weight, bias;
};

/// Three layers, the first used twice, and a scale of its own; the root unit.
struct Network : torch::nn::Module, nn::Unit {
  explicit Network(at::ScalarType dtype, double shift = 0) {
    first = register_module("first", std::make_shared<Layer>(7, 7, dtype, shift));
    second = register_module("second", std::make_shared<Layer>(7, 5, dtype, shift));
    third = register_module("third", std::make_shared<Layer>(5, 3, dtype, shift));
    scale = register_parameter("scale", at::full({3}, 1.5, at::TensorOptions().dtype(dtype)));
  }
  /// Sum over samples of a loss, times `factor`.
  Tensor loss(const Tensor& input, double factor) {
    return pass(input, [this, factor](const Tensor& x) {
      const Tensor y = third->forward(second->forward(first->forward(first->forward(x)))) * scale;
      return y.square().sum() * factor;
    });
  }
  std::vector<std::shared_ptr<Layer>> layers() const { return {first, second, third}; }
  std::shared_ptr<Layer> first, second, third;
  Tensor scale;
};

/// `count` samples that depend on their number alone.
inline Tensor samples(std::int64_t first, std::int64_t count, at::ScalarType dtype) {
  const auto numbers = at::arange(first * 7, (first + count) * 7, at::TensorOptions().dtype(at::kDouble));
  return (numbers * 0.7).cos().view({count, 7}).to(dtype);
}

using Gradients = std::vector<std::pair<std::string, Tensor>>;

/// Gradients of the whole batch by plain autograd.
inline Gradients reference_gradients(std::int64_t batch, double shift = 0) {
  Network network(at::kDouble, shift);
  network.loss(samples(0, batch, at::kDouble), 1.0 / static_cast<double>(batch)).backward();
  Gradients gradients;
  for (const auto& item : network.named_parameters()) {
    gradients.emplace_back(item.key(), item.value().grad());
  }
  return gradients;
}

/// Runs this rank's part of a batch of `batch` samples in micro-batches of `micro`.
inline void run_step(Network& network, parallel::DataParallel& layout, comm::Communicator& communicator,
                     std::int64_t batch, std::int64_t micro, at::ScalarType dtype = at::kDouble) {
  const std::int64_t ranks = communicator.mesh().size(mesh::batch_axes);
  const std::int64_t mine = batch / ranks;
  const std::int64_t first = communicator.mesh().index_in(communicator.rank(), mesh::batch_axes) * mine;
  for (std::int64_t done = 0; done < mine; done += micro) {
    layout.begin_micro_batch(done + micro >= mine);
    network.loss(samples(first + done, micro, dtype).requires_grad_(), 1.0 / static_cast<double>(batch))
        .backward();
  }
  layout.finish_backward();
}

}  // namespace ndmesh::test
