#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include "ndmesh/comm/world.h"
#include "ndmesh/nn/autograd.h"
#include "ndmesh/nn/decoder.h"

namespace ndmesh::parallel {
namespace {

/// Rows of inputs over the ranks; the bias is added once, after the sum: y = [21, 37] on any number of ranks, and
/// for L = sum(y) its gradient is [1, 1] on each.
TEST(RowParallelLinear, AddsItsBiasOnce) {
  const auto matrix = at::tensor(std::vector<double>{1, 0, 2, 1, 0, 1, 1, 3}).view({2, 4});
  const auto input = at::tensor(std::vector<double>{1, 2, 3, 4}).view({1, 1, 4});
  for (const std::int64_t tp : {1, 2, 4}) {
    comm::run_ranks(mesh::Mesh({.tp = tp}), {}, [&](comm::Communicator& communicator) {
      comm::Group& group = communicator.group({mesh::Axis::tp});
      const std::int64_t width = 4 / tp;
      const std::int64_t first = communicator.rank() * width;
      nn::Linear linear({width, 2, true}, at::kDouble);
      linear.weight.set_data(matrix.narrow(1, first, width).contiguous());
      linear.bias.set_data(at::tensor(std::vector<double>{10, 20}));
      nn::Port port;
      port.attach([&](const at::Tensor& product) {
        nn::Tensors out;
        {
          const nn::WithoutAutograd plain;
          out = {product.clone()};
          group.all_reduce({out[0]}, comm::Reduction::sum, "row product");
        }
        nn::attach("sum", {product}, out, {},
                   [](const auto&, const auto& gradients, const auto&) { return gradients; });
        return out[0];
      });
      const at::Tensor y = linear.forward(input.narrow(2, first, width).contiguous(), port);
      EXPECT_TRUE(at::equal(y.detach().view({2}), at::tensor(std::vector<double>{21, 37}))) << y;
      y.sum().backward();
      EXPECT_TRUE(at::equal(linear.bias.grad(), at::ones({2}, at::kDouble)));
    });
  }
}

}  // namespace
}  // namespace ndmesh::parallel
