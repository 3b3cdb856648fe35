#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include "ndmesh/base/memory_category.h"
#include "ndmesh/nn/autograd.h"
#include "ndmesh/nn/functional.h"
#include "ndmesh/nn/ids.h"
#include "ndmesh/nn/kernels.h"

namespace ndmesh::nn {
namespace {

/// Tokens whose ids are rows of a part of a table: where they stand in the batch, and in the part.
struct Places {
  at::Tensor tokens;
  at::Tensor rows;
};

Places places_of(const at::Tensor& ids, std::int64_t first, std::int64_t rows) {
  const at::Tensor local = ids.reshape({-1}) - first;
  const at::Tensor tokens = local.ge(0).logical_and(local.lt(rows)).nonzero().squeeze(1);
  return {tokens, local.index_select(0, tokens)};
}

/// Their rows; zero for all other tokens.
at::Tensor looked_up(const at::Tensor& table_VH, const at::Tensor& ids, const Places& places) {
  std::vector<std::int64_t> shape = ids.sizes().vec();
  shape.push_back(table_VH.size(1));
  const at::Tensor out = at::zeros({ids.numel(), table_VH.size(1)}, table_VH.options());
  out.index_copy_(0, places.tokens, at::embedding(table_VH, places.rows));
  return out.view(shape);
}

}  // namespace

at::Tensor embed(const at::Tensor& table_VH, const at::Tensor& ids_BS, std::int64_t first, std::int64_t of) {
  const std::int64_t rows = table_VH.size(0);
  const bool whole = of == 0 || of == rows;
  check_ids(ids_BS, whole ? rows : of, "token id");
  Tensors out;
  Places places;  // of the tokens whose rows are here, where the table is a part
  {
    const WithoutAutograd plain;
    if (whole) {
      out = {at::embedding(table_VH, ids_BS)};
    } else {
      places = places_of(ids_BS, first, rows);
      out = {looked_up(table_VH, ids_BS, places)};
    }
  }
  attach("embed", {table_VH}, out, {whole ? ids_BS : places.rows, places.tokens},
         [rows](const Tensors& saved, const Tensors& grads, const Needs&) -> Tensors {
           if (!grads[0].defined()) {
             return Tensors(1);
           }
           const MemoryScope scope(MemoryCategory::buffers);
           const at::Tensor& tokens = saved[1];
           const at::Tensor dout = tokens.defined()
                                       ? grads[0].reshape({-1, grads[0].size(-1)}).index_select(0, tokens)
                                       : grads[0];
           return {kernels_for(dout).embedding_gradient(saved[0], dout, rows)};
         });
  return out[0];
}

}  // namespace ndmesh::nn
