#include <ATen/Functions.h>

#include "ndmesh/base/memory_category.h"
#include "ndmesh/nn/autograd.h"
#include "ndmesh/nn/functional.h"
#include "ndmesh/nn/ids.h"
#include "ndmesh/nn/kernels.h"

namespace ndmesh::nn {

at::Tensor embed(const at::Tensor& table_VH, const at::Tensor& ids_BS) {
  const std::int64_t vocab = table_VH.size(0);
  check_ids(ids_BS, vocab, "token id");
  Tensors out;
  {
    const WithoutAutograd plain;
    out = {at::embedding(table_VH, ids_BS)};
  }
  attach("embed", {table_VH}, out, {ids_BS},
         [vocab](const Tensors& saved, const Tensors& grads, const Needs&) -> Tensors {
           const MemoryScope scope(MemoryCategory::buffers);
           return {grads[0].defined() ? kernels_for(grads[0]).embedding_gradient(saved[0], grads[0], vocab)
                                      : at::Tensor()};
         });
  return out[0];
}

}  // namespace ndmesh::nn
