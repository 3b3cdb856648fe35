#include "ndmesh/parallel/box_views.h"

namespace ndmesh::parallel {
namespace {

/// The dim along which boxes lie one behind another in local memory.
std::size_t joined_dim(const std::vector<layout::Box>& boxes) {
  for (std::size_t dim = 0; dim < boxes.front().size(); ++dim) {
    for (const layout::Box& box : boxes) {
      if (!(box[dim] == boxes.front()[dim])) {
        return dim;
      }
    }
  }
  return 0;
}

}  // namespace

std::vector<at::Tensor> box_views(const at::Tensor& local, const layout::TensorLayout& layout,
                                  std::int64_t rank) {
  const std::vector<layout::Box> boxes = layout.boxes(rank);
  const std::size_t joined = joined_dim(boxes);
  std::vector<at::Tensor> views;
  std::int64_t before = 0;
  for (const layout::Box& box : boxes) {
    at::Tensor view = local;
    for (std::size_t dim = 0; dim < box.size(); ++dim) {
      view = view.narrow(static_cast<std::int64_t>(dim), dim == joined ? before : 0, box[dim].size);
    }
    before += box.empty() ? 0 : box[joined].size;
    views.push_back(std::move(view));
  }
  return views;
}

at::Tensor box_of(const at::Tensor& whole, const layout::Box& box) {
  at::Tensor view = whole;
  for (std::size_t dim = 0; dim < box.size(); ++dim) {
    view = view.narrow(static_cast<std::int64_t>(dim), box[dim].start, box[dim].size);
  }
  return view;
}

}  // namespace ndmesh::parallel
