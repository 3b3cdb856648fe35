#include "ndmesh/schedule/interleaving.h"

#include <algorithm>

namespace ndmesh::schedule {

std::int64_t interleaving_rounds(std::int64_t micro_batches, std::int64_t pp) {
  return std::max<std::int64_t>(1, micro_batches / pp);
}

bool interleaves(std::int64_t micro_batches, std::int64_t pp, Interleaving interleaving) {
  if (interleaving == Interleaving::classic) return micro_batches % pp == 0;
  return micro_batches % interleaving_rounds(micro_batches, pp) == 0;
}

}  // namespace ndmesh::schedule
