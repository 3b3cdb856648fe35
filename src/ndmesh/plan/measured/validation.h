#pragma once

#include <string>
#include <vector>

#include "ndmesh/plan/measured/accuracy.h"

namespace ndmesh::plan {

/// The planner against one file of measurements.
struct Validation {
  std::string source;
  Measurements measurements;
  std::vector<Prediction> predictions;  ///< of measurements.list, in order
  Accuracy all;
  std::vector<Accuracy> groups;    ///< by source
  std::vector<Accuracy> clusters;  ///< by machines and software
  std::vector<Accuracy> models;    ///< by size and kind of model
};

/// Predicts every row and compares. Errors as read_measurements.
Validation validate(Measurements measurements, const std::string& source);

}  // namespace ndmesh::plan
