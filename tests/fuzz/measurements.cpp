#include "ndmesh/plan/measured/measurements.h"
#include "fuzz/target.h"

/// A table of measurements.
void ndmesh::fuzz::one_input(std::string_view bytes) {
  plan::parse_measurements(bytes, "measurements.csv");
}
