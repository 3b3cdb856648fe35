#pragma once

#include <string>

namespace ndmesh::plan {

/// A doubt about the first plan of an answer.
struct Warning {
  std::string name;  ///< of the row in the table of warnings
  std::string text;
};

}  // namespace ndmesh::plan
