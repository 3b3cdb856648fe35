#include "ndmesh/parallel/partial_gradients.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "ndmesh/base/memory_category.h"
#include "ndmesh/nn/host_memory.h"
#include "ndmesh/parallel/box_views.h"

namespace ndmesh::parallel {
namespace {

using mesh::Axis;

/// Beyond the loss axes.
mesh::AxisSet partial_axes(const layout::ParameterLayout& layout) {
  return layout.gradient_reduction_axes & mesh::AxisSet{Axis::tp, Axis::pp};
}

/// Of the ranks that differ from `rank` in `axes`, those that hold all of `box`.
std::vector<std::int64_t> holders_of(const layout::Box& box, const layout::ParameterLayout& layout,
                                     const schedule::Shape& shape, std::int64_t rank, mesh::AxisSet axes) {
  const mesh::Mesh& mesh = layout.tensor.mesh();
  std::vector<std::int64_t> ranks = mesh.group(rank, axes);
  std::erase_if(ranks, [&](std::int64_t other) {
    const std::int64_t position = mesh.coordinate(other, Axis::pp);
    const std::vector<layout::Box> boxes = layout.tensor.boxes(other);
    const bool has_it =
        position == shape.rank_of(layout.first_stage) || position == shape.rank_of(layout.last_stage);
    return !has_it || std::find(boxes.begin(), boxes.end(), box) == boxes.end();
  });
  return ranks;
}

/// What this rank's chunks have together, dense and on the device.
at::Tensor own_sum(const std::vector<at::Tensor>& mine, bool on_host) {
  const auto here = [on_host](const at::Tensor& t) { return on_host ? nn::brought_to_device(t) : t; };
  const at::Tensor sum = here(mine.front()).contiguous();
  for (std::size_t i = 1; i < mine.size(); ++i) {
    sum.add_(here(mine[i]));
  }
  return sum;
}

}  // namespace

PartialGradients::PartialGradients(const ModelLayout& layouts, const schedule::Shape& shape,
                                   const std::vector<Trainable>& trainables,
                                   comm::Communicator& communicator) {
  for (const auto& [name, layout] : layouts) {
    if (partial_axes(layout).empty()) {
      continue;
    }
    std::vector<Trainable> mine;
    std::copy_if(trainables.begin(), trainables.end(), std::back_inserter(mine),
                 [&wanted = name](const Trainable& t) { return t.name == wanted; });
    if (!mine.empty()) {
      add(mine, layout, shape, communicator);
    }
  }
}

void PartialGradients::add(const std::vector<Trainable>& mine, const layout::ParameterLayout& layout,
                           const schedule::Shape& shape, comm::Communicator& communicator) {
  const mesh::AxisSet axes = partial_axes(layout);
  const std::int64_t rank = communicator.rank();
  const std::vector<layout::Box> boxes = layout.tensor.boxes(rank);
  for (std::size_t b = 0; b < boxes.size(); ++b) {
    const std::vector<std::int64_t> ranks = holders_of(boxes[b], layout, shape, rank, axes);
    if (layout::elements(boxes[b]) == 0 || (ranks.size() == 1 && mine.size() == 1)) {
      continue;
    }
    Part part{{}, mine.front().gradient_on_host};
    for (const Trainable& trainable : mine) {
      part.mine.push_back(box_views(trainable.gradient, layout.tensor, rank)[b]);
    }
    sum_over(ranks.size() > 1 ? &communicator.subgroup(axes, ranks) : nullptr).parts.push_back(part);
  }
}

PartialGradients::Sum& PartialGradients::sum_over(comm::Group* group) {
  const auto found =
      std::find_if(sums_.begin(), sums_.end(), [&](const Sum& sum) { return sum.group == group; });
  return found != sums_.end() ? *found : sums_.emplace_back(Sum{group, {}});
}

void PartialGradients::sum() {
  const at::NoGradGuard no_grad;
  const MemoryScope scope(MemoryCategory::buffers);
  std::vector<std::vector<at::Tensor>> sums;
  std::vector<comm::Work> works;
  for (const Sum& sum :
       sums_) {  // all before the first is waited for: ranks meet in groups of several orders
    std::vector<at::Tensor>& tensors = sums.emplace_back();
    for (const Part& part : sum.parts) {
      tensors.push_back(own_sum(part.mine, part.on_host));
    }
    if (sum.group != nullptr) {
      works.push_back(sum.group->start_all_reduce(tensors, comm::Reduction::sum, "partial gradients"));
    }
  }
  for (comm::Work& work : works) {
    work.release();
  }
  for (std::size_t s = 0; s < sums_.size(); ++s) {
    for (std::size_t p = 0; p < sums[s].size(); ++p) {
      const Part& part = sums_[s].parts[p];
      for (const at::Tensor& mine : part.mine) {
        if (part.on_host) {
          nn::copy_to_host(mine, sums[s][p]);
        } else if (!mine.is_same(sums[s][p])) {
          mine.copy_(sums[s][p]);
        }
      }
    }
  }
}

}  // namespace ndmesh::parallel
