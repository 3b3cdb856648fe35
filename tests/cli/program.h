#pragma once

#include <string>
#include <vector>

namespace ndmesh::testing_cli {

struct Result {
  int status = -1;  ///< exit status; 128 + N when signal N ended it
  std::string out;
  std::string err;
};

/// The program under test: environment NDMESH_BINARY, else the one of this build.
std::string program();

/// Runs it with `arguments`, no shell between.
Result run(const std::vector<std::string>& arguments);

/// A file below a folder that lives as long as the tests; returns its path.
std::string file_with(const std::string& name, const std::string& content);

}  // namespace ndmesh::testing_cli
