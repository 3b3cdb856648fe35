#pragma once

#include <cstdint>
#include <functional>
#include <unordered_map>
#include <vector>

#include "ndmesh/job/job.h"
#include "ndmesh/layout/layout.h"
#include "ndmesh/plan/problem.h"

namespace ndmesh::plan {

/// The layers of every pipeline stage of `job`, in the order of the model, as pipeline.layers says: those of
/// MemoryModel::stages for the job as it is. `job` and `model` have passed job::check_trainable.
std::vector<layout::Range> stage_cut(const job::Job& job, const model::ModelSpec& model);

/// What a stage costs that has these layers; infinity: it must not have them.
using StageCost = std::function<double(std::int64_t stage, const layout::Range& layers)>;

/// Of all cuts of `layers` layers into contiguous stages of at least one layer, one whose costliest stage costs least; of
/// equals one with most layers in front. At most as many stages as layers.
std::vector<layout::Range> cheapest_cut(std::int64_t layers, std::int64_t stages, const StageCost& cost);

/// Costs of layers, added up.
class LayerCosts {
 public:
  /// `last`: what the last stage has beyond its layers.
  LayerCosts(const std::vector<double>& layers, double last);
  /// In floating-point operations of a token; behind the last layer the head.
  explicit LayerCosts(const Problem& problem);

  std::int64_t layers() const { return static_cast<std::int64_t>(before_.size()) - 1; }
  double of(const layout::Range& layers) const;
  double last() const { return last_; }

 private:
  std::vector<double> before_;  ///< by layer: all in front of it
  double last_;
};

/// cheapest_cut of all layers, by what they cost.
std::vector<layout::Range> cheapest_cut(const LayerCosts& costs, std::int64_t stages);
/// The same by `costs` of the layers, and what the last stage has beyond its layers.
std::vector<layout::Range> cheapest_cut(const std::vector<double>& costs, double last, std::int64_t stages);

/// The cuts of a problem that depend on nothing but the number of stages: even, by cost, as given. Each is made when it is
/// first asked for. Not shared between threads.
class CutTable {
 public:
  /// `problem` outlives it; its policy is not `memory`.
  explicit CutTable(const Problem& problem) : problem_(problem) {}

  /// Every stage's decoder layers. Even stages: layout::even_stages, or, where the ends are layers, that of two layers more,
  /// less the embedding on the first stage and the head on the last, which may leave none. By cost: cheapest_cut, the head
  /// on the last stage. As given: for that number of stages. One stage has all layers.
  const std::vector<layout::Range>& of(std::int64_t stages);

 private:
  std::vector<layout::Range> cut(std::int64_t stages) const;

  const Problem& problem_;
  std::unordered_map<std::int64_t, std::vector<layout::Range>> cuts_;
};

/// Stages of these sizes, one behind the other.
std::vector<layout::Range> stages_of(const std::vector<std::int64_t>& sizes);

}  // namespace ndmesh::plan
