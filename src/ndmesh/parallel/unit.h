#pragma once

#include <torch/nn/module.h>

#include <string_view>

#include "ndmesh/nn/ports.h"

namespace ndmesh::parallel {

/// `module` as the unit that a strategy needs. RunError, naming `strategy`, when it is none.
nn::Unit& as_unit(torch::nn::Module& module, std::string_view strategy);

}  // namespace ndmesh::parallel
