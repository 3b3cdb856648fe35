#pragma once

#include <string>
#include <vector>

#include "ndmesh/plan/measured/csv.h"
#include "ndmesh/plan/measured/measurements.h"

namespace ndmesh::plan {

/// Columns of the table of iteration times that vTrain (Bang et al., MICRO 2024) was validated with.
std::vector<std::string> vtrain_columns();
bool is_vtrain_table(const CsvTable& table);

/// GPTs with ffn = 4 * hidden in mixed 16-bit precision under Megatron with replicated data parallelism, full
/// recompute and 1F1B, on nodes of 8 A100. Not stated, and taken: a vocabulary of 51200 and devices of 80 GB;
/// nothing is concluded about memory. Rows of more than one node are a group of their own.
Measurements vtrain_measurements(const CsvTable& table);

}  // namespace ndmesh::plan
