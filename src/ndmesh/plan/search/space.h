#pragma once

#include <cstdint>
#include <vector>

#include "ndmesh/plan/search/held.h"

namespace ndmesh::plan {

/// What dp_shard and cp cut, and whether gathered parameters are freed between forward and backward.
struct Sharding {
  std::int64_t zero = 0;
  bool reshard = true;
};

struct Pipelining {
  schedule::Kind kind = schedule::Kind::one_f_one_b;
  std::int64_t chunks = 1;
};

/// A schedule and the micro-batches that it can deal out.
struct Staging {
  Pipelining pipelining;
  std::vector<std::int64_t> micro;  ///< ascending
};

/// The legal candidates of one legal mesh: for each staging the product of its micro-batches and the other
/// lists.
struct MeshOptions {
  mesh::MeshSizes mesh;
  std::vector<Sharding> sharding;
  std::vector<Staging> staging;
  std::vector<job::Recompute> recompute;
  std::vector<mesh::AxisOrder> orders;
  job::Offload offload = job::Offload::none;
  bool offload_activations = false;
  bool sequence_parallel = true;

  std::int64_t count() const;
};

/// The space of candidates of a problem: every mesh whose product is the cluster, every divisor of the batch
/// as micro-batch, every zero stage, the schedules with up to most_chunks chunks, recomputation of nothing,
/// what is cheap, every n-th block and all, and the few sensible rank orders. Where the problem lists layers or actions,
/// only pipelines of that shape are legal (allows_stages). What makes no difference on a mesh (zero without shard ranks, a
/// schedule without stages, the order of axes of one rank) counts once.
/// `problem` outlives it. A plain value after construction, safe from any thread.
class Space {
 public:
  static constexpr std::int64_t most_chunks = 8;

  Space(const Problem& problem, const Held& held);

  /// Meshes that break no rule, in a fixed order; `refused` counts the candidates of the others.
  struct Meshes {
    std::vector<mesh::MeshSizes> legal;
    std::int64_t refused = 0;
  };
  Meshes meshes() const;

  /// Of a legal mesh.
  MeshOptions options(const mesh::MeshSizes& mesh) const;
  /// Candidates of a mesh, legal or not.
  std::int64_t count(const mesh::MeshSizes& mesh) const;

 private:
  /// Sizes of the axes up to `axis` of the order of the walk, and what is left for the others.
  struct Branch {
    mesh::MeshSizes sizes;
    std::size_t axis = 0;
    std::int64_t rest = 1;
    bool is_legal = true;
  };
  void walk(Branch branch, Meshes& found) const;
  void add_expert_meshes(const Branch& branch, Meshes& found) const;
  bool is_legal(const mesh::MeshSizes& sizes) const;
  Staging staging(const mesh::MeshSizes& mesh, const Pipelining& pipelining) const;
  std::vector<Sharding> shardings(bool shares) const;
  std::vector<Pipelining> pipelinings() const;
  const std::vector<Sharding>& shardings(const mesh::MeshSizes& mesh) const;
  const std::vector<Pipelining>& pipelinings(const mesh::MeshSizes& mesh) const;
  const std::vector<mesh::AxisOrder>& orders(const mesh::MeshSizes& mesh) const;

  const Problem& problem_;
  Held held_;
  mesh::RuleInput rules_;
  std::vector<std::int64_t> device_divisors_;
  std::vector<std::int64_t> batch_divisors_;
  std::vector<std::int64_t> expert_sizes_;
  std::vector<job::Recompute> recompute_;
  std::vector<Sharding> alone_, shared_;              ///< without and with shard ranks
  std::vector<Pipelining> whole_, staged_;            ///< without and with stages
  std::vector<std::vector<mesh::AxisOrder>> orders_;  ///< by the set of axes that are used, as bits
};

}  // namespace ndmesh::plan
