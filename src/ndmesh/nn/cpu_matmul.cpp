#include "ndmesh/nn/cpu_matmul.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>

#include <algorithm>

#include "ndmesh/base/memory_category.h"
#include "ndmesh/nn/cpu_attention_loops.h"
#include "ndmesh/nn/cpu_product.h"

namespace ndmesh::nn {
namespace {

constexpr std::int64_t block_rows = 1024;   // of the left factor, held while the right one passes by
constexpr std::int64_t product_rows = 128;  // of one product
constexpr std::int64_t block_columns = 64;  // of the right factor: one panel
constexpr std::int64_t block_inner = 512;
constexpr std::int64_t left_stride =
    block_inner + 16;  // no power of two: rows would share few lines of the cache
constexpr std::int64_t left_size = block_rows * left_stride;
constexpr std::int64_t panel_size = block_inner * block_columns;

/// A matrix whose rows or columns are dense.
struct Factor {
  const float* data;
  std::int64_t stride;
  bool dense_rows;

  explicit Factor(const at::Tensor& t)
      : data(t.const_data_ptr<float>()),
        stride(t.stride(1) == 1 ? t.stride(0) : t.stride(1)),
        dense_rows(t.stride(1) == 1) {}

  /// Copies the rows x columns from (row, column) on to dense rows.
  void lay_out(std::int64_t row, std::int64_t column, const cpu::Extent& size, cpu::Operand<float> to) const {
    if (!dense_rows) {
      cpu::TransposeUnits{data + column * stride + row, stride, to.data, to.stride, size.m}.run({0, size.n});
      return;
    }
    for (std::int64_t i = 0; i < size.m; ++i) {
      std::copy_n(data + (row + i) * stride + column, size.n, to.data + i * to.stride);
    }
  }
};

struct Product {
  Factor a_MK;
  Factor b_KN;
  cpu::Operand<float> out_MN;
  cpu::Extent extent;
  bool add;

  /// Rows [begin, end) of the result.
  void run(std::int64_t begin, std::int64_t end, float* scratch) const {
    for (std::int64_t row = begin; row < end; row += block_rows) {
      for (std::int64_t inner = 0; inner < extent.k; inner += block_inner) {
        add_block(row, std::min(block_rows, end - row), inner, scratch);
      }
    }
  }

 private:
  void add_block(std::int64_t row, std::int64_t rows, std::int64_t inner, float* scratch) const {
    const cpu::Operand<float> left = {scratch, left_stride};
    const cpu::Operand<float> panel = {scratch + left_size, block_columns};
    const std::int64_t depth = std::min(block_inner, extent.k - inner);
    a_MK.lay_out(row, inner, {rows, depth, 0}, left);
    for (std::int64_t column = 0; column < extent.n; column += block_columns) {
      const std::int64_t columns = std::min(block_columns, extent.n - column);
      b_KN.lay_out(inner, column, {depth, columns, 0}, panel);
      for (std::int64_t i = 0; i < rows; i += product_rows) {
        const cpu::Operand<float> a = left.from_row(i);
        const cpu::Operand<float> out = out_MN.from_row(row + i);
        cpu::multiply<float>({std::min(product_rows, rows - i), columns, depth}, {a.data, a.stride},
                             {panel.data, panel.stride}, {out.data + column, out.stride}, add || inner > 0);
      }
    }
  }
};

at::Tensor with_dense_side(const at::Tensor& t) {
  return t.stride(0) == 1 || t.stride(1) == 1 ? t : t.contiguous();
}

}  // namespace

bool blocks_can(const at::Tensor& a_MK, const at::Tensor& b_KN) {
  constexpr std::int64_t least = 64;
  return a_MK.scalar_type() == at::kFloat && a_MK.size(0) >= least && a_MK.size(1) >= least &&
         b_KN.size(1) >= least;
}

void blocked_matmul(at::Tensor& out_MN, const at::Tensor& a_MK, const at::Tensor& b_KN, bool add) {
  TORCH_CHECK(a_MK.size(1) == b_KN.size(0) && out_MN.size(0) == a_MK.size(0) &&
                  out_MN.size(1) == b_KN.size(1) && out_MN.stride(1) == 1,
              "matmul: ", a_MK.sizes(), " times ", b_KN.sizes(), " into ", out_MN.sizes());
  const at::Tensor a = with_dense_side(a_MK);
  const at::Tensor b = with_dense_side(b_KN);
  const Product product = {Factor(a),
                           Factor(b),
                           {out_MN.mutable_data_ptr<float>(), out_MN.stride(0)},
                           {out_MN.size(0), out_MN.size(1), a.size(1)},
                           add};
  const MemoryScope scope(MemoryCategory::workspace);
  const at::Tensor scratch = at::empty({at::get_num_threads(), left_size + panel_size}, out_MN.options());
  float* memory = scratch.mutable_data_ptr<float>();
  const std::int64_t blocks = (product.extent.m + product_rows - 1) / product_rows;
  at::parallel_for(0, blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    product.run(begin * product_rows, std::min(product.extent.m, end * product_rows),
                memory + at::get_thread_num() * (left_size + panel_size));
    cpu::release_products();
  });
}

}  // namespace ndmesh::nn
