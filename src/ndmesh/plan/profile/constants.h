#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ndmesh/plan/problem.h"

namespace ndmesh::plan {

/// One number of the time model that no data sheet gives.
struct Constant {
  std::string name;  ///< "matmul_efficiency"
  std::string unit;
  double value = 0;  ///< above 0
  double spread =
      0;  ///< how far the truth may be: standard deviation of its logarithm; 0: known, never fitted
  std::string origin;  ///< a source, or the fit that it comes from
};

/// The numbers of the time model for one kind of device and runtime, in the order of the table of constants.
struct Constants {
  std::vector<Constant> list;

  double operator[](std::string_view name) const;  ///< std::out_of_range for an unknown name
  double& at(std::string_view name);
};

/// The committed constants for a device and a runtime: the nearest that were fitted (architecture, then any).
Constants constants_for(const cluster::Cluster& cluster, std::string_view runtime);
/// Those of the problem's cluster and runtime.
Constants constants_for(const Problem& problem);

}  // namespace ndmesh::plan
