#include <fmt/format.h>

#include "ndmesh/cli/validation_text.h"

namespace ndmesh::cli {
namespace {

using Json = nlohmann::ordered_json;
using plan::Accuracy;

Json json_of(const std::optional<double>& value) {
  return value ? Json(*value) : Json();
}

Json mean_json(const std::optional<plan::WeightedMean>& mean) {
  return mean ? Json(mean->value) : Json();
}

Json interval_json(const std::optional<plan::WeightedMean>& mean) {
  return mean ? Json{mean->low, mean->high} : Json();
}

Json time_json(const Accuracy& accuracy) {
  return {{"rows", accuracy.time_rows},
          {"mape_uncalibrated", json_of(accuracy.mape_uncalibrated)},
          {"mape_calibrated", json_of(accuracy.mape_calibrated)},
          {"tau", mean_json(accuracy.tau)},
          {"regret", mean_json(accuracy.regret)},
          {"tau_interval", interval_json(accuracy.tau)},
          {"regret_interval", interval_json(accuracy.regret)},
          {"tau_uncalibrated", mean_json(accuracy.tau_uncalibrated)},
          {"regret_uncalibrated", mean_json(accuracy.regret_uncalibrated)},
          {"ranking_groups", accuracy.ranking_groups},
          {"calibration_rows", accuracy.calibration_rows}};
}

Json part_json(const Accuracy& accuracy) {
  Json json = {{"name", accuracy.name}, {"rows", accuracy.rows}, {"memory_rows", accuracy.memory_rows}};
  json["memory_mape"] = json_of(accuracy.memory_mape);
  json["memory_bias"] = json_of(accuracy.memory_bias);
  json["verdict_rows"] = accuracy.verdict_rows;
  json["verdict_right"] = accuracy.verdict_right;
  json["wrongly_fits"] = accuracy.wrongly_fits;
  json["wrongly_not"] = accuracy.wrongly_not;
  Json time = time_json(accuracy);
  json["time_rows"] = time["rows"];
  time.erase("rows");
  json.update(time);
  json["bias_uncalibrated"] = json_of(accuracy.bias_uncalibrated);
  json["bias_calibrated"] = json_of(accuracy.bias_calibrated);
  return json;
}

Json parts_json(const std::vector<Accuracy>& parts) {
  Json list = Json::array();
  for (const Accuracy& part : parts) list.push_back(part_json(part));
  return list;
}

}  // namespace

Json validation_json(const plan::Validation& validation) {
  const Accuracy& all = validation.all;
  Json json = {{"rows", validation.measurements.rows}};
  json["left_out"] = Json::array();
  for (const plan::LeftOut& row : validation.measurements.left_out) {
    json["left_out"].push_back(
        {{"id", row.id}, {"part", row.part.empty() ? "all" : row.part}, {"reason", row.reason}});
  }
  json["memory"] = {{"rows", all.memory_rows}, {"mape", json_of(all.memory_mape)}};
  json["verdict"] = {{"rows", all.verdict_rows}, {"right", all.verdict_right}};
  json["time"] = time_json(all);
  json["groups"] = parts_json(validation.groups);
  json["clusters"] = parts_json(validation.clusters);
  json["models"] = parts_json(validation.models);
  return json;
}

}  // namespace ndmesh::cli
