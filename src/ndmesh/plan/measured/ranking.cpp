#include "ndmesh/plan/measured/ranking.h"

#include <fmt/format.h>

#include <map>
#include <numeric>
#include <utility>

namespace ndmesh::plan {
namespace {

constexpr std::size_t least_rows = 3;
constexpr std::size_t least_layouts = 2;

/// The same for rows that the planner cannot tell apart: equal candidates that cost the same to the last bit.
std::string layout_key(const Measurement& row, const Prediction& prediction) {
  const Candidate& candidate = row.candidate;
  return fmt::format("{} {} {} {} {} {} {} {} {} {} {:a}", candidate.mesh.name(), candidate.micro,
                     schedule::name_of(candidate.schedule), candidate.chunks, candidate.zero,
                     candidate.reshard, static_cast<int>(candidate.recompute.policy),
                     candidate.recompute.layers, static_cast<int>(candidate.offload),
                     candidate.sequence_parallel, prediction.uncalibrated);
}

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

Ranking ranking_of(const std::string& key, const std::vector<Measurement>& list,
                   const std::vector<Prediction>& predictions, const std::vector<std::size_t>& rows) {
  Ranking ranking;
  ranking.key = key;
  ranking.rows = rows.size();
  std::map<std::string, std::size_t> positions;
  std::vector<std::vector<double>> seconds;
  for (const std::size_t i : rows) {
    const auto [found, fresh] = positions.try_emplace(layout_key(list[i], predictions[i]), seconds.size());
    if (fresh) {
      seconds.emplace_back();
      ranking.ids.push_back(list[i].id);
      ranking.calibrated.push_back(predictions[i].calibrated);
      ranking.uncalibrated.push_back(predictions[i].uncalibrated);
    }
    seconds[found->second].push_back(*list[i].seconds);
  }
  for (const std::vector<double>& layout : seconds) ranking.measured.push_back(mean_of(layout));
  return ranking;
}

}  // namespace

bool is_scored(const Measurement& row, const Prediction& prediction) {
  return row.seconds && !prediction.calibrates;
}

std::vector<Ranking> rankings_of(const std::vector<Measurement>& list,
                                 const std::vector<Prediction>& predictions,
                                 const std::vector<std::size_t>& rows) {
  std::map<std::string, std::vector<std::size_t>> groups;
  for (const std::size_t i : rows) {
    if (is_scored(list[i], predictions[i])) groups[list[i].ranking].push_back(i);
  }
  std::vector<Ranking> result;
  for (const auto& [key, group] : groups) {
    if (group.size() < least_rows) continue;
    Ranking ranking = ranking_of(key, list, predictions, group);
    if (ranking.measured.size() >= least_layouts) result.push_back(std::move(ranking));
  }
  return result;
}

}  // namespace ndmesh::plan
