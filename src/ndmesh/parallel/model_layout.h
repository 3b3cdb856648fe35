#pragma once

#include <map>
#include <string>

#include "ndmesh/layout/layout.h"

namespace ndmesh::parallel {

/// Where the parameters of a model lie, by name: what the strategies that cut single parameters make of them, and the
/// shard ranks of what those leave.
using ModelLayout = std::map<std::string, layout::ParameterLayout>;

inline ModelLayout model_layout(const model::ModelSpec& spec, const mesh::Mesh& mesh,
                                const layout::ParameterRules& rules) {
  ModelLayout by_name;
  for (layout::ParameterLayout& parameter : layout::parameter_layouts(spec, mesh, rules)) {
    by_name.emplace(parameter.spec.name, std::move(parameter));
  }
  return by_name;
}

}  // namespace ndmesh::parallel
