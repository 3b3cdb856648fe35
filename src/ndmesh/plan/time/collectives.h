#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "ndmesh/cluster/cluster.h"
#include "ndmesh/plan/profile/constants.h"

namespace ndmesh::plan {

/// A level on which ranks of a group meet that did not meet further in.
struct Crossing {
  double inside = 1;     ///< ranks of the group in one domain of the level below
  double members = 1;    ///< and in one domain of this level
  double bandwidth = 0;  ///< bytes/s of each rank
  bool operator==(const Crossing&) const = default;
};

/// What a group's place on the cluster costs, reduced to a few numbers: sums over the levels that it crosses.
struct GroupCost {
  double ranks = 1;
  std::vector<Crossing> crossings;
  double ring_bandwidth =
      0;  ///< bytes/s of the narrowest place of a ring (a domain's links are shared by its ranks)
  double pair_bandwidth = 0;   ///< bytes/s between neighbours on the outermost level
  double hop_seconds = 0;      ///< of the ranks - 1 hops of a ring together
  double tree_seconds = 0;     ///< of a tree's way up
  double pair_seconds = 0;     ///< of one hop on the outermost level
  double in_network_gain = 1;  ///< all-reduce bandwidth over that of a ring
  bool operator==(const GroupCost&) const = default;
};

/// Seconds of collectives on one cluster: the least over protocols (one of little latency and half the
/// bandwidth, one of all bandwidth, after NCCL's LL128 and Simple) and over algorithms (ring; tree for small
/// all-reduces). All groups of the same shape run at once, as they do in training: cluster::Level::bandwidth
/// counts that.
class Collectives {
 public:
  /// `cluster` outlives it. RequestError when a level's bandwidth is not known.
  Collectives(const cluster::Cluster& cluster, const Constants& constants);

  /// The cost of the groups with these extents (cluster::span_of).
  GroupCost group(const std::vector<cluster::Extent>& extents) const;
  /// The cost of a group that spans so; ranks 1 costs nothing.
  GroupCost group(const cluster::Span& span) const;

  /// `bytes` of the whole tensor on every rank; 2 (n - 1) / n of them pass each rank.
  double all_reduce(const GroupCost& group, double bytes) const;
  /// `bytes` of the whole (gathered) tensor; (n - 1) / n of them pass each rank.
  double all_gather(const GroupCost& group, double bytes) const;
  double reduce_scatter(const GroupCost& group, double bytes) const { return all_gather(group, bytes); }
  /// The same result as all_gather by a broadcast from each rank in turn: n times the way down a tree.
  double broadcasts(const GroupCost& group, double bytes) const;
  /// `bytes` that one rank holds, 1 / n of them for each.
  double all_to_all(const GroupCost& group, double bytes) const;
  /// Tokens to the ranks of their experts: `bytes` of the tokens of one rank, each for `copies` experts. A
  /// copy goes to each expert on its own; or (`once`, as DeepEP does) once to each domain and rank that has
  /// one of them, experts being spread evenly.
  double dispatch(const GroupCost& group, double bytes, double copies, bool once) const;
  /// `bytes` from one rank to its neighbour, all at once.
  double send(const GroupCost& group, double bytes) const;

 private:
  const cluster::Cluster* cluster_;
  double inner_efficiency_, outer_efficiency_, in_network_gain_, base_seconds_;
};

}  // namespace ndmesh::plan
