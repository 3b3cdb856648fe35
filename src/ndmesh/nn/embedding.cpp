#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include "ndmesh/base/memory_category.h"
#include "ndmesh/nn/autograd.h"
#include "ndmesh/nn/functional.h"
#include "ndmesh/nn/ids.h"
#include "ndmesh/nn/kernels.h"

namespace ndmesh::nn {
namespace {

/// Rows of a part of a table by places in it; zero where a place is none of the part's.
at::Tensor looked_up(const at::Tensor& table_VH, const at::Tensor& places) {
  const std::int64_t rows = table_VH.size(0);
  std::vector<std::int64_t> shape = places.sizes().vec();
  shape.push_back(table_VH.size(1));
  const at::Tensor out = at::zeros({places.numel(), table_VH.size(1)}, table_VH.options());
  const at::Tensor flat = places.reshape({-1});
  const at::Tensor tokens = flat.ge(0).logical_and(flat.lt(rows)).nonzero().squeeze(1);
  out.index_copy_(0, tokens, at::embedding(table_VH, flat.index_select(0, tokens)));
  return out.view(shape);
}

}  // namespace

at::Tensor embed(const at::Tensor& table_VH, const at::Tensor& ids_BS, std::int64_t first, std::int64_t of) {
  const std::int64_t rows = table_VH.size(0);
  const bool whole = of == 0 || of == rows;
  check_ids(ids_BS, whole ? rows : of, "token id");
  Tensors out;
  at::Tensor places;
  {
    const WithoutAutograd plain;
    places = whole ? ids_BS : ids_BS - first;
    out = {whole ? at::embedding(table_VH, places) : looked_up(table_VH, places)};
  }
  attach("embed", {table_VH}, out, {places},
         [rows](const Tensors& saved, const Tensors& grads, const Needs&) -> Tensors {
           const MemoryScope scope(MemoryCategory::buffers);
           return {grads[0].defined() ? kernels_for(grads[0]).embedding_gradient(saved[0], grads[0], rows)
                                      : at::Tensor()};
         });
  return out[0];
}

}  // namespace ndmesh::nn
