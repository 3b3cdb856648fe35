#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ndmesh/cluster/cluster.h"
#include "ndmesh/job/job.h"
#include "ndmesh/mesh/mesh.h"
#include "ndmesh/model/model_spec.h"
#include "ndmesh/plan/profile/profile.h"
#include "ndmesh/schedule/schedule.h"

namespace ndmesh::plan {

/// LoRA over a frozen base; rank 0 trains everything.
struct Adapter {
  std::int64_t rank = 0;
  bool operator==(const Adapter&) const = default;
};

/// A pipeline schedule that is a list of actions.
struct PipelineList {
  std::shared_ptr<const schedule::Schedule> schedule;  ///< null: the schedule is of a candidate's kind
  std::string file;                                    ///< where it stands
  std::vector<std::int64_t> in_flight;                 ///< most passes of each pipeline rank in flight
  bool splits_backward = false;                        ///< has weight gradients of their own
};

/// The list of a job; none where its schedule is a kind.
PipelineList pipeline_list(const job::PipelineSection& pipeline);

/// Everything about a training plan that is not searched. A plain value; plan functions only read it.
struct Problem {
  model::ModelSpec model;
  cluster::Cluster cluster;
  Profile profile;
  std::int64_t seq_len = 0;       ///< tokens
  std::int64_t global_batch = 0;  ///< sequences of one step
  Precision precision;
  job::OptimizerName optimizer = job::OptimizerName::adamw;
  bool momentum = true;             ///< sgd keeps a moment
  std::vector<std::string> frozen;  ///< patterns of parameter names, as train.frozen
  job::ContextKind context = job::ContextKind::ring;
  Adapter adapter;
  std::int64_t loss_chunk = 0;        ///< tokens whose logits exist at a time; 0: all of a micro-batch
  double headroom = 0.05;             ///< share of usable memory left free
  double expert_skew = 1.0;           ///< tokens of the busiest expert rank over the mean
  std::int64_t checkpoint_every = 0;  ///< steps; 0: never
  job::StageLayers layers;            ///< how stages are cut where there are several
  bool ends_are_layers = false;       ///< even stages: embedding and head count as a layer each
  PipelineList list;                  ///< where the schedule is one
};

/// One way to lay the problem out: what the search varies.
struct Candidate {
  mesh::MeshSizes mesh;
  mesh::AxisOrder order = mesh::default_order;
  std::int64_t micro = 1;  ///< sequences of one forward on one batch rank
  schedule::Kind schedule = schedule::Kind::one_f_one_b;
  std::int64_t chunks = 1;  ///< of each pipeline rank
  std::int64_t zero = 0;  ///< 0..3: what the shard ranks share: nothing, optimizer, + gradients, + parameters
  bool reshard = true;    ///< zero 3: free a unit's parameters after its forward
  job::Recompute recompute;
  job::Offload offload = job::Offload::none;
  bool offload_activations = false;  ///< what blocks keep for backward waits in host memory
  bool sequence_parallel = true;     ///< norm regions cut over tp; means nothing while tp is 1

  bool operator==(const Candidate&) const = default;
};

/// global_batch / (micro * batch ranks). The mesh rules have held.
std::int64_t micro_batches(const Problem& problem, const Candidate& candidate);

/// Whether `candidate` runs the problem's list: it has pipeline ranks, and the problem a list.
bool runs_list(const Problem& problem, const Candidate& candidate);

/// Whether weight gradients are computed apart from input gradients.
bool splits_backward(const Problem& problem, const Candidate& candidate);

/// The schedule's shape; one rank, one chunk while pp is 1. A list's shape says where its stages are, no more.
schedule::Shape schedule_shape(const Problem& problem, const Candidate& candidate);

/// schedule::peak_in_flight, or what a list keeps.
std::int64_t peak_in_flight(const Problem& problem, const schedule::Shape& shape, std::int64_t rank);
std::int64_t peak_in_flight(const Problem& problem, const schedule::Shape& shape, std::int64_t rank,
                            std::span<const std::int64_t> weights);

}  // namespace ndmesh::plan
