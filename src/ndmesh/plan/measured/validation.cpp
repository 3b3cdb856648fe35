#include "ndmesh/plan/measured/validation.h"

#include <fmt/format.h>

#include <array>

namespace ndmesh::plan {
namespace {

/// "dense, up to 10B": sizes in classes, so that a class holds rows of several sources.
std::string model_class(const Measurement& row) {
  constexpr std::array classes = {1, 10, 50, 200};
  const double billions = static_cast<double>(row.problem.model.parameter_count()) / 1e9;
  const std::string kind = row.problem.model.experts ? "MoE" : "dense";
  for (const int most : classes) {
    if (billions <= most) return fmt::format("{}, up to {}B", kind, most);
  }
  return fmt::format("{}, above {}B", kind, classes.back());
}

}  // namespace

Validation validate(Measurements measurements, const std::string& source) {
  Validation result;
  result.source = source;
  result.measurements = std::move(measurements);
  result.predictions = predict(result.measurements);
  const std::vector<Measurement>& list = result.measurements.list;
  result.all = overall_accuracy(list, result.predictions);
  result.groups = accuracy_by(list, result.predictions, [](const Measurement& row) { return row.group; });
  result.clusters = accuracy_by(list, result.predictions, [](const Measurement& row) { return row.cluster; });
  result.models = accuracy_by(list, result.predictions, model_class);
  return result;
}

}  // namespace ndmesh::plan
