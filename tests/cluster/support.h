#pragma once

#include <string>

#include "ndmesh/base/error.h"
#include "ndmesh/cluster/cluster.h"

namespace ndmesh::cluster {

/// A cluster as the value of a job's key `cluster`.
inline Cluster parse(const std::string& yaml) {
  return parse_cluster(yaml, "cluster");
}

/// What is refused; empty when nothing is.
template <typename Action>
std::string refusal(const Action& action) {
  try {
    action();
  } catch (const RequestError& error) {
    return error.what();
  }
  return "";
}

inline std::string refusal_of(const std::string& yaml) {
  return refusal([&] { parse(yaml); });
}

}  // namespace ndmesh::cluster
