#pragma once

#include <string>
#include <vector>

#include "ndmesh/plan/measured/measured_row.h"

namespace ndmesh::plan {

/// What a row's own source, or the people who gathered the table, say against it.
struct Distrust {
  std::string part;  ///< "memory", "time" or "verdict"; empty: against all of it
  std::string reason;
};

/// Every objection to the row, by the words of its notes and, where the table's description names single
/// rows, by id.
std::vector<Distrust> distrust(const MeasuredRow& row);

}  // namespace ndmesh::plan
