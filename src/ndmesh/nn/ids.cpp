#include "ndmesh/nn/ids.h"

#include <fmt/format.h>

#include "ndmesh/base/error.h"

namespace ndmesh::nn {

void check_ids(const at::Tensor& ids_any, std::int64_t vocab, const char* what,
               std::optional<std::int64_t> also) {
  TORCH_CHECK(ids_any.scalar_type() == at::kLong, what, "s are int64, not ", ids_any.scalar_type());
  if (!ids_any.is_cpu()) {
    return;
  }
  const at::Tensor ids = ids_any.contiguous();
  const std::int64_t* id = ids.const_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < ids.numel(); ++i) {
    const bool inside = static_cast<std::uint64_t>(id[i]) < static_cast<std::uint64_t>(vocab);
    if (!inside && id[i] != also) {
      throw RunError(
          fmt::format("{} {} at place {} of the batch is outside of the vocabulary: 0 .. {} are allowed{}",
                      what, id[i], i, vocab - 1, also ? fmt::format(", and {} for none", *also) : ""));
    }
  }
}

}  // namespace ndmesh::nn
