#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "ndmesh/layout/layout.h"
#include "ndmesh/plan/problem.h"
#include "ndmesh/plan/time/collectives.h"
#include "ndmesh/plan/time/layer_time.h"

namespace ndmesh::plan {

/// Seconds of forward and backward of some layers, waits included.
struct Totals {
  double forward = 0;
  double input_grad = 0;
  double weight_grad = 0;
  double dense = 0;  ///< Work::dense
  double whole() const { return forward + input_grad + weight_grad; }
  double backward() const { return input_grad + weight_grad; }
  Totals& operator+=(const Totals& other);
};

/// What one stage has of the model.
struct Stage {
  layout::Range layers;  ///< decoder layers; may be none
  bool first = false;    ///< has the embedding
  bool last = false;     ///< has final norm, head and loss
};

/// Work of every stage under one way to divide a micro-batch.
class WorkTable {
 public:
  WorkTable(const Problem& problem, const LayerClock& clock, const job::Recompute& recompute);

  Work work(const Stage& stage) const;
  Totals totals(const Stage& stage) const;
  /// Layers alone, without embedding and head.
  Work blocks(const layout::Range& layers) const;

 private:
  template <typename Sum>
  Sum with_ends(Sum sum, const Stage& stage, const Sum& embedding, const Sum& behind) const;

  std::vector<Work> before_;  // by layer: everything in front of it, the embedding left out
  std::vector<Totals> totals_before_;
  double tied_ = 0;  // elements that a stage with both ends would count twice
  Work embedding_, behind_;
  Totals embedding_totals_, behind_totals_;
};

/// The tables of one problem, made when first asked for and kept while there are few; candidates whose groups
/// cost the same share one. Not shared between threads.
class WorkTables {
 public:
  /// References must outlive it.
  WorkTables(const Problem& problem, const Rates& rates, const Collectives& collectives);

  /// Each reference holds until the next call.
  const WorkTable& of(const Candidate& candidate);
  /// The same without waiting for others, as if every group were of one rank: never more than of() in any
  /// part, and alike for every order and every split of the data ranks.
  const WorkTable& alone(const Candidate& candidate);

 private:
  /// What a division depends on.
  struct Key {
    mesh::MeshSizes mesh;  ///< sizes that do not matter are 1
    mesh::AxisOrder order = mesh::default_order;
    std::int64_t micro = 1;
    job::Recompute recompute;
    bool sequence_parallel = true;
    bool offload_activations = false;
    bool operator==(const Key&) const = default;
  };
  /// What a table depends on.
  struct Divided {
    Division division;
    job::Recompute recompute;
    bool operator==(const Divided&) const = default;
  };
  struct Hash {
    std::size_t operator()(const Key& key) const;
    std::size_t operator()(const Divided& divided) const;
  };
  using Places = std::unordered_map<Key, const WorkTable*, Hash>;  // into tables_
  static Key key_of(const Candidate& candidate);
  const WorkTable& table(const Divided& divided);

  const Problem& problem_;
  const Rates& rates_;
  const Collectives& collectives_;
  std::unordered_map<Divided, WorkTable, Hash> tables_;
  Places places_;
  Places alone_;
};

}  // namespace ndmesh::plan
