#include "ndmesh/plan/stage_cut.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "ndmesh/model/config.h"

namespace ndmesh::plan {
namespace {

std::vector<layout::Range> ranges_of(const std::vector<std::int64_t>& sizes) {
  std::vector<layout::Range> ranges;
  std::int64_t start = 0;
  for (const std::int64_t size : sizes) {
    ranges.push_back({start, size});
    start += size;
  }
  return ranges;
}

}  // namespace

std::vector<layout::Range> cheapest_cut(const std::vector<double>& costs, double last, std::int64_t stages) {
  const std::size_t layers = costs.size();
  const auto count = static_cast<std::size_t>(stages);
  std::vector<double> before(layers + 1, 0.0);
  std::partial_sum(costs.begin(), costs.end(), before.begin() + 1);
  // worst[s][l]: the costliest stage of the best cut of the first l layers into s stages; from[s][l]: where its last begins.
  std::vector<std::vector<double>> worst(
      count + 1, std::vector<double>(layers + 1, std::numeric_limits<double>::infinity()));
  std::vector<std::vector<std::size_t>> from(count + 1, std::vector<std::size_t>(layers + 1, 0));
  worst[0][0] = 0;
  for (std::size_t s = 1; s <= count; ++s) {
    for (std::size_t end = s; end <= layers; ++end) {
      for (std::size_t start = s - 1; start < end; ++start) {
        const double stage = before[end] - before[start] + (s == count ? last : 0);
        const double cost = std::max(worst[s - 1][start], stage);
        if (cost <= worst[s][end]) {  // of equals the one with most layers in front
          worst[s][end] = cost;
          from[s][end] = start;
        }
      }
    }
  }
  std::vector<std::int64_t> sizes(count);
  std::size_t end = layers;
  for (std::size_t s = count; s > 0; --s) {
    sizes[s - 1] = static_cast<std::int64_t>(end - from[s][end]);
    end = from[s][end];
  }
  return ranges_of(sizes);
}

std::vector<layout::Range> stage_cut(const job::Job& job, const model::ModelSpec& model) {
  const std::int64_t stages = job::pipeline_shape(job).stages();
  const job::StageLayers& cut = job.pipeline.layers;
  if (stages == 1 || cut.policy == job::StageLayers::Policy::even) {
    return layout::even_stages(model.layers, stages);
  }
  if (cut.policy == job::StageLayers::Policy::given) {
    return ranges_of(cut.layers);
  }
  std::vector<double> costs;
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    costs.push_back(model::layer_flops_per_token(model, layer, job.batch.seq_len).total());
  }
  return cheapest_cut(costs, model::head_flops_per_token(model), stages);
}

}  // namespace ndmesh::plan
