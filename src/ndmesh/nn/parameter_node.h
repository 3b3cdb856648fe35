#pragma once

#include <torch/csrc/autograd/function.h>

namespace ndmesh::nn {

/// A node whose outputs are parameters of a module: what makes them from where they are kept. Operators that read them keep
/// the parameter, not a copy.
struct ParameterNode : torch::autograd::Node {
  using Node::Node;
};

}  // namespace ndmesh::nn
