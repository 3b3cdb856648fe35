#include "ndmesh/parallel/unit.h"

#include <fmt/format.h>

#include "ndmesh/base/error.h"

namespace ndmesh::parallel {

nn::Unit& as_unit(torch::nn::Module& module, std::string_view strategy) {
  auto* unit = dynamic_cast<nn::Unit*>(&module);
  if (unit == nullptr) {
    throw RunError(fmt::format(
        "{}: module {} is no nn::Unit: derive it from ndmesh::nn::Unit too and let its forward be one pass",
        strategy, module.name()));
  }
  return *unit;
}

}  // namespace ndmesh::parallel
