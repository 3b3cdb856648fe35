#include "ndmesh/train/on_any_rank.h"

#include <ATen/Functions.h>

namespace ndmesh::train {

bool on_any_rank(bool mine, comm::Communicator& communicator, const char* label) {
  const at::Tensor flag = at::full({1}, mine ? 1 : 0, at::kLong);
  communicator.everyone().all_reduce({flag}, comm::Reduction::max, label);
  return flag.item<std::int64_t>() != 0;
}

}  // namespace ndmesh::train
