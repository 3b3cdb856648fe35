#include "ndmesh/measure/pipeline_clock.h"

#include <algorithm>

#include "ndmesh/base/clock.h"
#include "ndmesh/schedule/simulate.h"

namespace ndmesh::measure {
namespace {

using schedule::ActionKind;

enum Figure : std::size_t { busy, span, passes };

/// Mean over the ranks that run each stage, in the order of the model.
std::vector<schedule::StageSeconds> stage_seconds(const schedule::Shape& shape,
                                                  const std::vector<std::vector<double>>& figures,
                                                  const std::vector<std::int64_t>& pipeline_rank) {
  std::vector<schedule::StageSeconds> stages(static_cast<std::size_t>(shape.stages()));
  const double share = static_cast<double>(shape.ranks) / static_cast<double>(figures.size());
  for (std::size_t rank = 0; rank < figures.size(); ++rank) {
    for (std::int64_t chunk = 0; chunk < shape.chunks; ++chunk) {
      schedule::StageSeconds& stage =
          stages[static_cast<std::size_t>(shape.stage_of(pipeline_rank[rank], chunk))];
      const double* of_chunk = figures[rank].data() + passes + 3 * chunk;
      stage.forward += share * of_chunk[0];
      stage.input_grad += share * of_chunk[1];
      stage.weight_grad += share * of_chunk[2];
    }
  }
  return stages;
}

}  // namespace

void PipelineClock::begin(std::int64_t chunks) {
  begun_ = ended_ = now_seconds();
  busy_ = 0;
  passes_.assign(static_cast<std::size_t>(3 * chunks), {});
}

void PipelineClock::add(const schedule::Action& action, double begin, double end) {
  if (!schedule::is_compute(action.kind)) {
    return;
  }
  const std::size_t kind = action.kind == ActionKind::forward       ? 0
                           : action.kind == ActionKind::weight_grad ? 2
                                                                    : 1;
  Passes& mine = passes_[3 * static_cast<std::size_t>(action.chunk) + kind];
  mine.seconds += end - begin;
  mine.count += 1;
  busy_ += end - begin;
  ended_ = end;
}

std::vector<double> PipelineClock::figures() const {
  std::vector<double> figures = {busy_, ended_ - begun_};
  for (const Passes& of_kind : passes_) {
    figures.push_back(of_kind.count > 0 ? of_kind.seconds / static_cast<double>(of_kind.count) : 0);
  }
  return figures;
}

Bubble bubble_of(const schedule::Schedule& schedule, const std::vector<std::vector<double>>& figures,
                 const std::vector<std::int64_t>& pipeline_rank) {
  double sum = 0;
  double longest = 0;
  for (const std::vector<double>& rank : figures) {
    sum += rank[busy];
    longest = std::max(longest, rank[span]);
  }
  Bubble bubble;
  bubble.measured = longest > 0 ? 1 - sum / static_cast<double>(figures.size()) / longest : 0;
  const auto stages = stage_seconds(schedule.shape, figures, pipeline_rank);
  bubble.predicted = schedule::simulate_list(schedule, stages).bubble();
  return bubble;
}

}  // namespace ndmesh::measure
