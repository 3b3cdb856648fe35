#include "ndmesh/plan/stage_cut.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "ndmesh/model/config.h"

namespace ndmesh::plan {
namespace {

using Policy = job::StageLayers::Policy;

constexpr double infinite = std::numeric_limits<double>::infinity();

std::vector<double> operations_of_layers(const Problem& problem) {
  std::vector<double> operations;
  for (std::int64_t layer = 0; layer < problem.model.layers; ++layer) {
    operations.push_back(model::layer_flops_per_token(problem.model, layer, problem.seq_len).total());
  }
  return operations;
}

/// Slots of which the first is the embedding's and the last the head's.
std::vector<layout::Range> with_ends_as_layers(std::int64_t layers, std::int64_t stages) {
  std::vector<layout::Range> cut = layout::even_stages(layers + 2, stages);
  for (layout::Range& stage : cut) {
    const std::int64_t first = std::clamp<std::int64_t>(stage.start - 1, 0, layers);
    const std::int64_t end = std::clamp<std::int64_t>(stage.start + stage.size - 1, 0, layers);
    stage = {.start = first, .size = end - first};
  }
  return cut;
}

}  // namespace

std::vector<layout::Range> stages_of(const std::vector<std::int64_t>& sizes) {
  std::vector<layout::Range> stages;
  std::int64_t start = 0;
  for (const std::int64_t size : sizes) {
    stages.push_back({start, size});
    start += size;
  }
  return stages;
}

std::vector<layout::Range> cheapest_cut(std::int64_t layers, std::int64_t stages, const StageCost& cost) {
  const auto width = static_cast<std::size_t>(layers) + 1;
  const auto place = [&](std::int64_t stage, std::int64_t end) {
    return static_cast<std::size_t>(stage) * width + static_cast<std::size_t>(end);
  };
  // worst: the costliest stage of the best cut of the first `end` layers into `stage` stages; from: where its last begins.
  std::vector<double> worst(place(stages, 0) + width, infinite);
  std::vector<std::int64_t> from(worst.size(), 0);
  worst[place(0, 0)] = 0;
  for (std::int64_t stage = 1; stage <= stages; ++stage) {
    for (std::int64_t end = stage; end <= layers - (stages - stage); ++end) {
      double& least = worst[place(stage, end)];
      for (std::int64_t start = stage - 1; start < end; ++start) {
        const double before = worst[place(stage - 1, start)];
        if (before > least || before == infinite) continue;
        const double whole = std::max(before, cost(stage - 1, {start, end - start}));
        if (whole <= least) {
          least = whole;
          from[place(stage, end)] = start;
        }
      }
    }
  }
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(stages));
  std::int64_t end = layers;
  for (std::int64_t stage = stages; stage > 0; --stage) {
    const std::int64_t start = from[place(stage, end)];
    sizes[static_cast<std::size_t>(stage) - 1] = end - start;
    end = start;
  }
  return stages_of(sizes);
}

std::vector<layout::Range> cheapest_cut(const LayerCosts& costs, std::int64_t stages) {
  return cheapest_cut(costs.layers(), stages, [&](std::int64_t stage, const layout::Range& range) {
    return costs.of(range) + (stage + 1 == stages ? costs.last() : 0);
  });
}

std::vector<layout::Range> cheapest_cut(const std::vector<double>& costs, double last, std::int64_t stages) {
  return cheapest_cut(LayerCosts(costs, last), stages);
}

LayerCosts::LayerCosts(const std::vector<double>& layers, double last)
    : before_(layers.size() + 1, 0.0), last_(last) {
  std::partial_sum(layers.begin(), layers.end(), before_.begin() + 1);
}

LayerCosts::LayerCosts(const Problem& problem)
    : LayerCosts(operations_of_layers(problem), model::head_flops_per_token(problem.model)) {}

double LayerCosts::of(const layout::Range& layers) const {
  return before_[static_cast<std::size_t>(layers.start + layers.size)] -
         before_[static_cast<std::size_t>(layers.start)];
}

const std::vector<layout::Range>& CutTable::of(std::int64_t stages) {
  const auto [place, is_new] = cuts_.try_emplace(stages);
  if (is_new) place->second = cut(stages);
  return place->second;
}

std::vector<layout::Range> CutTable::cut(std::int64_t stages) const {
  const std::int64_t layers = problem_.model.layers;
  if (stages == 1) return layout::even_stages(layers, 1);
  if (problem_.layers.policy == Policy::given) return stages_of(problem_.layers.layers);
  if (problem_.layers.policy == Policy::cost) {
    return cheapest_cut(LayerCosts(problem_), stages);
  }
  return problem_.ends_are_layers ? with_ends_as_layers(layers, stages) : layout::even_stages(layers, stages);
}

}  // namespace ndmesh::plan
