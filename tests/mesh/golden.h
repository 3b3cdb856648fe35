#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "ndmesh/mesh/mesh.h"

namespace ndmesh::test {

/// A JSON file of tests/data.
inline nlohmann::json golden(const std::string& name) {
  std::ifstream file(std::string(NDMESH_TEST_DATA) + "/" + name);
  return nlohmann::json::parse(file);
}

/// Sizes from {"tp": 2, "ep": 4}.
inline mesh::MeshSizes sizes_from(const nlohmann::json& object) {
  mesh::MeshSizes sizes;
  for (const auto& [name, size] : object.items()) {
    if (name == "ep") {
      sizes.ep = size;
    } else if (name == "etp") {
      sizes.etp = size;
    } else {
      sizes.size(mesh::axis_from_name(name).value()) = size;
    }
  }
  return sizes;
}

}  // namespace ndmesh::test
