#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ndmesh/base/memory_category.h"
#include "ndmesh/mesh/mesh.h"
#include "ndmesh/plan/warning.h"

namespace ndmesh::cli {

// What plans of training and of serving write alike in `ndmesh plan --json`.

nlohmann::ordered_json mesh_json(const mesh::MeshSizes& sizes);
nlohmann::ordered_json order_json(const mesh::AxisOrder& order);
nlohmann::ordered_json memory_json(const MemoryBytes& bytes);
nlohmann::ordered_json warnings_json(const std::vector<plan::Warning>& warnings);

/// Prints a document to standard output; texts of any origin become valid UTF-8.
void print_json(const nlohmann::ordered_json& document);

}  // namespace ndmesh::cli
