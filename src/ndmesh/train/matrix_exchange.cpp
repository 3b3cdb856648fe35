#include "ndmesh/train/matrix_exchange.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>

#include "ndmesh/base/error.h"
#include "ndmesh/base/memory_category.h"

namespace ndmesh::train {
namespace {

using parallel::Trainable;

comm::Group* group_of(comm::Communicator& communicator, mesh::AxisSet axes) {
  return communicator.mesh().size(axes) > 1 ? &communicator.group(axes) : nullptr;
}

mesh::AxisSet axes_of_copies(mesh::AxisSet cut) {
  mesh::AxisSet axes;
  for (const mesh::Axis axis : {mesh::Axis::cp, mesh::Axis::dp_shard, mesh::Axis::dp_replicate}) {
    axes = cut.contains(axis) ? axes : axes.with(axis);
  }
  return axes;
}

void check_rows(const Trainable& matrix, mesh::AxisSet cut, const comm::Group* rows) {
  const layout::Shape& shape = matrix.layout.shape();
  const std::int64_t parts = rows == nullptr ? 1 : rows->size();
  const std::int64_t own = layout::split(shape[0], parts, rows == nullptr ? 0 : rows->rank()).size;
  if (!(matrix.layout.cut_axes() == cut) || matrix.gradient.size(0) != own ||
      matrix.gradient.size(1) != shape[1]) {
    throw RunError(fmt::format(
        "Muon: matrix {} is cut over {}; allowed: rows in equal parts over {}, as all matrices here",
        matrix.name, matrix.layout.cut_axes().name(), cut.name()));
  }
}

}  // namespace

class MatrixExchange::Round {
 public:
  /// `first` of `matrices` belongs to the first rank of this round.
  Round(const std::vector<Trainable>& matrices, std::size_t first, comm::Group* rows, comm::Group* copies)
      : matrices_(matrices), first_(first), rows_(rows), copies_(copies) {}

  void run(const Work& work) const {
    const Trainable* mine = owned_by(row_rank(), copy_rank());
    const at::Tensor whole = gather(mine);
    at::Tensor result;
    if (mine != nullptr) {
      const MemoryScope scope(MemoryCategory::workspace);
      result = work(whole).to(whole.scalar_type()).contiguous();
    }
    hand_back(mine, result);
    send_to_copies();
  }

 private:
  std::int64_t row_ranks() const { return rows_ == nullptr ? 1 : rows_->size(); }
  std::int64_t row_rank() const { return rows_ == nullptr ? 0 : rows_->rank(); }
  std::int64_t copy_ranks() const { return copies_ == nullptr ? 1 : copies_->size(); }
  std::int64_t copy_rank() const { return copies_ == nullptr ? 0 : copies_->rank(); }

  /// Null where there are fewer matrices than ranks.
  const Trainable* owned_by(std::int64_t row_rank, std::int64_t copy_rank) const {
    const std::size_t index = first_ + static_cast<std::size_t>(copy_rank * row_ranks() + row_rank);
    return index < matrices_.size() ? &matrices_[index] : nullptr;
  }

  /// This rank's rows of the matrices that the row ranks own, by owner.
  std::vector<at::Tensor> own_rows() const {
    std::vector<at::Tensor> list;
    for (std::int64_t owner = 0; owner < row_ranks(); ++owner) {
      const Trainable* matrix = owned_by(owner, copy_rank());
      list.push_back(matrix != nullptr ? matrix->gradient : nothing());
    }
    return list;
  }

  /// The rows of the owned matrix `whole`, by rank; empty ones where this rank owns none.
  std::vector<at::Tensor> rows_by_rank(const Trainable* mine, const at::Tensor& whole) const {
    std::vector<at::Tensor> list;
    for (std::int64_t rank = 0; rank < row_ranks(); ++rank) {
      if (mine == nullptr) {
        list.push_back(nothing());
        continue;
      }
      const layout::Range rows = layout::split(mine->layout.shape()[0], row_ranks(), rank);
      list.push_back(whole.narrow(0, rows.start, rows.size));
    }
    return list;
  }

  at::Tensor nothing() const { return at::empty({0}, matrices_.front().gradient.options()); }

  at::Tensor gather(const Trainable* mine) const {
    if (rows_ == nullptr) {
      return mine != nullptr ? mine->gradient : at::Tensor();
    }
    const MemoryScope scope(MemoryCategory::buffers);
    const at::Tensor whole =
        mine != nullptr ? at::empty(mine->layout.shape(), mine->gradient.options()) : nothing();
    rows_->all_to_all(rows_by_rank(mine, whole), own_rows(), "directions of matrices");
    return whole;
  }

  void hand_back(const Trainable* mine, const at::Tensor& result) const {
    if (rows_ != nullptr) {
      rows_->all_to_all(own_rows(), rows_by_rank(mine, result), "updates of matrices");
    } else if (mine != nullptr) {
      mine->gradient.copy_(result);
    }
  }

  void send_to_copies() const {
    for (std::int64_t root = 0; copies_ != nullptr && root < copy_ranks(); ++root) {
      std::vector<at::Tensor> list;
      for (std::int64_t owner = 0; owner < row_ranks(); ++owner) {
        if (const Trainable* matrix = owned_by(owner, root)) {
          list.push_back(matrix->gradient);
        }
      }
      if (!list.empty()) {
        copies_->broadcast(list, static_cast<int>(root), "updates of matrices");
      }
    }
  }

  const std::vector<Trainable>& matrices_;
  std::size_t first_;
  comm::Group* rows_;
  comm::Group* copies_;
};

MatrixExchange::MatrixExchange(std::vector<Trainable> matrices, comm::Communicator& communicator)
    : matrices_(std::move(matrices)) {
  if (matrices_.empty()) {
    return;
  }
  const mesh::AxisSet cut = matrices_.front().layout.cut_axes();
  rows_ = group_of(communicator, cut);
  copies_ = group_of(communicator, axes_of_copies(cut));
  for (const Trainable& matrix : matrices_) {
    check_rows(matrix, cut, rows_);
  }
  // Those of one round are then nearly of one size, so that ranks do not wait for each other.
  const auto elements = [](const Trainable& t) { return t.layout.shape()[0] * t.layout.shape()[1]; };
  std::stable_sort(matrices_.begin(), matrices_.end(),
                   [&](const Trainable& x, const Trainable& y) { return elements(x) > elements(y); });
}

void MatrixExchange::transform(const Work& work) {
  const at::NoGradGuard no_grad;
  const std::size_t ranks = static_cast<std::size_t>(rows_ == nullptr ? 1 : rows_->size()) *
                            static_cast<std::size_t>(copies_ == nullptr ? 1 : copies_->size());
  for (std::size_t first = 0; first < matrices_.size(); first += ranks) {
    Round(matrices_, first, rows_, copies_).run(work);
  }
}

}  // namespace ndmesh::train
