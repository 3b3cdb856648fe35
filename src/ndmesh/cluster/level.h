#pragma once

#include <cstdint>
#include <string>

namespace ndmesh::cluster {

/// One level of the network, from the fastest inwards to the slowest outwards. A domain of a level is a run of
/// `devices` consecutive devices (the last one may be cut short); domains lie whole inside those of the next level.
/// Bandwidths are line rates after encoding, in one direction, before the protocol of any library: a cost model
/// multiplies them by its own efficiency and by nothing else.
struct Level {
  std::string name;          ///< "nvlink", "xgmi", "pcie", "node", "network", or as the cluster file names it
  std::int64_t devices = 1;  ///< in one domain

  /// Bytes/s that each device of a domain has towards the rest of its domain when all of them send at once: shared NICs
  /// and oversubscription are counted. 0: not known.
  double bandwidth = 0;

  /// Bytes/s between one pair when nobody else sends. A group of n devices of one domain has
  /// min(bandwidth, (n - 1) * pair_bandwidth) each: links without a switch (xGMI) give a small group only part of theirs.
  double pair_bandwidth = 0;

  double latency = 0;  ///< seconds that one hop adds to a small message

  bool operator==(const Level&) const = default;
};

}  // namespace ndmesh::cluster
