#include "ndmesh/plan/time/collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ndmesh/base/error.h"

namespace ndmesh::plan {
namespace {

/// A protocol's latency and bandwidth, relative to a level's hop and line.
struct Protocol {
  double hop = 1;
  double bandwidth = 1;
};
constexpr Protocol quick = {.hop = 1, .bandwidth = 0.5};
constexpr Protocol whole = {.hop = 3, .bandwidth = 1};

/// `steps` hops of a ring's share and `bytes` through its narrowest place.
double ring_seconds(const GroupCost& group, double rounds, double bytes, double bandwidth) {
  const auto by = [&](const Protocol& protocol) {
    return rounds * group.hop_seconds * protocol.hop + bytes / (bandwidth * protocol.bandwidth);
  };
  return std::min(by(quick), by(whole));
}

/// Bytes/s of each rank towards `peers` others of a level, before protocols. A pair's bandwidth of 0 is no
/// limit.
double line_rate(const cluster::Level& level, double peers) {
  const double pairs = level.pair_bandwidth * std::max(1.0, peers);
  return pairs > 0 ? std::min(level.bandwidth, pairs) : level.bandwidth;
}

}  // namespace

Collectives::Collectives(const cluster::Cluster& cluster, const Constants& constants)
    : cluster_(&cluster),
      inner_efficiency_(constants["inner_efficiency"]),
      outer_efficiency_(constants["outer_efficiency"]),
      in_network_gain_(constants["in_network_gain"]),
      base_seconds_(constants["collective_seconds"]) {
  Problems problems;
  for (const cluster::Level& level : cluster.levels) {
    if (cluster.devices() > 1 && level.bandwidth <= 0) {
      problems.add(fmt::format(
          "the bandwidth of level {} of cluster {} is not known, so there is no step time: state it "
          "in a cluster file",
          level.name, cluster.name));
    }
  }
  problems.raise();
}

GroupCost Collectives::group(const std::vector<cluster::Extent>& extents) const {
  return group(cluster::span_of(*cluster_, extents));
}

GroupCost Collectives::group(const cluster::Span& span) const {
  GroupCost cost;
  cost.ranks = static_cast<double>(span.ranks);
  if (span.ranks <= 1) {
    return cost;
  }
  cost.ring_bandwidth = INFINITY;
  double inside = 1;  // ranks that share a domain of the level below
  for (std::size_t l = 0; l <= span.level; ++l) {
    const cluster::Level& level = cluster_->levels[l];
    const double members = static_cast<double>(span.members[l]);
    if (members <= inside) {
      continue;  // no two ranks meet on this level first
    }
    const double efficiency = l == 0 ? inner_efficiency_ : outer_efficiency_;
    const double peers = members / inside - 1;  // other domains of the level below
    const double bandwidth = line_rate(level, peers) * efficiency;
    cost.ring_bandwidth = std::min(cost.ring_bandwidth, inside * bandwidth);
    cost.crossings.push_back({.inside = inside, .members = members, .bandwidth = bandwidth});
    cost.pair_bandwidth = bandwidth;
    cost.hop_seconds += (cost.ranks / inside - cost.ranks / members) * level.latency;
    cost.tree_seconds += std::ceil(std::log2(members / inside)) * level.latency;
    cost.pair_seconds = level.latency;
    inside = members;
  }
  const bool one_domain = span.level == 0 && span.ranks > 4;
  cost.in_network_gain = one_domain ? in_network_gain_ : 1;
  return cost;
}

double Collectives::all_reduce(const GroupCost& group, double bytes) const {
  if (group.ranks <= 1) {
    return 0;
  }
  const double bandwidth = group.ring_bandwidth * group.in_network_gain;
  const double ring = ring_seconds(group, 2, 2 * (group.ranks - 1) / group.ranks * bytes, bandwidth);
  const double tree = 2 * group.tree_seconds * whole.hop + 2 * bytes / (0.9 * group.ring_bandwidth);
  return base_seconds_ + std::min(ring, tree);
}

double Collectives::all_gather(const GroupCost& group, double bytes) const {
  if (group.ranks <= 1) {
    return 0;
  }
  return base_seconds_ +
         ring_seconds(group, 1, (group.ranks - 1) / group.ranks * bytes, group.ring_bandwidth);
}

double Collectives::broadcasts(const GroupCost& group, double bytes) const {
  if (group.ranks <= 1) {
    return 0;
  }
  return group.ranks * (base_seconds_ + whole.hop * group.tree_seconds) + bytes / group.ring_bandwidth;
}

double Collectives::all_to_all(const GroupCost& group, double bytes) const {
  if (group.ranks <= 1) {
    return 0;
  }
  double slowest = 0;
  for (const Crossing& crossing : group.crossings) {
    const double share = (crossing.members - crossing.inside) / group.ranks;
    slowest = std::max(slowest, share * bytes / crossing.bandwidth);
  }
  return base_seconds_ + group.pair_seconds + slowest;
}

double Collectives::dispatch(const GroupCost& group, double bytes, double copies, bool once) const {
  if (!once || group.ranks <= 1) {
    return all_to_all(group, bytes * copies);
  }
  double slowest = 0;
  for (const Crossing& crossing : group.crossings) {
    // Of the domains of the level below, other than the token's own, those that one of its experts sits in.
    const double hit = 1 - std::pow(1 - crossing.inside / group.ranks, copies);
    const double reached = crossing.inside > 1 ? crossing.members / crossing.inside - 1 : group.ranks - 1;
    slowest = std::max(slowest, reached * hit * bytes / crossing.bandwidth);
  }
  return base_seconds_ + group.pair_seconds + slowest;
}

double Collectives::send(const GroupCost& group, double bytes) const {
  return group.ranks <= 1 ? 0 : base_seconds_ + group.pair_seconds + bytes / group.pair_bandwidth;
}

}  // namespace ndmesh::plan
