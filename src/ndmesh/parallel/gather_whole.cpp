#include "ndmesh/parallel/gather_whole.h"

#include <ATen/Functions.h>

#include "ndmesh/parallel/box_views.h"

namespace ndmesh::parallel {

at::Tensor gather_whole(const at::Tensor& owned, const layout::TensorLayout& layout,
                        comm::Communicator& communicator, const std::string& label) {
  const mesh::AxisSet cut = layout.cut_axes();
  if (cut.empty()) {
    return owned;
  }
  comm::Group& group = communicator.group(cut);
  const at::Tensor mine = owned.contiguous();
  const at::Tensor whole = at::empty(layout.shape(), owned.options());
  for (int i = 0; i < group.size(); ++i) {
    const std::int64_t rank = group.members()[static_cast<std::size_t>(i)];
    const at::Tensor part =
        i == group.rank() ? mine : at::empty(layout.padded_local_shape(rank), owned.options());
    group.broadcast({part}, i, label);
    const std::vector<layout::Box> boxes = layout.boxes(rank);
    const std::vector<at::Tensor> views = box_views(part, layout, rank);
    for (std::size_t b = 0; b < boxes.size(); ++b) {
      box_of(whole, boxes[b]).copy_(views[b]);
    }
  }
  return whole;
}

}  // namespace ndmesh::parallel
