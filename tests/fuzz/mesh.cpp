#include <stdexcept>

#include "fuzz/target.h"
#include "ndmesh/mesh/mesh.h"

/// A mesh in the notation of the command line.
void ndmesh::fuzz::one_input(std::string_view bytes) {
  const mesh::MeshSizes sizes = mesh::parse_mesh(bytes);
  if (!(mesh::parse_mesh(sizes.name()) == sizes)) {
    throw std::logic_error("the name of a mesh reads back to another: " + sizes.name());
  }
}
