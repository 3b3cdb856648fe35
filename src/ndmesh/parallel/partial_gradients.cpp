#include "ndmesh/parallel/partial_gradients.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <set>

#include "ndmesh/base/memory_category.h"
#include "ndmesh/nn/host_memory.h"

namespace ndmesh::parallel {
namespace {

using mesh::Axis;

/// The ranks that differ from this one in pp alone and hold `parameter`.
std::vector<std::int64_t> holders_of(const layout::ParameterLayout& parameter, const schedule::Shape& shape,
                                     const comm::Communicator& communicator) {
  const mesh::Mesh& mesh = communicator.mesh();
  auto coordinates = mesh.coordinates(communicator.rank());
  std::set<std::int64_t> ranks;
  for (const std::int64_t stage : {parameter.first_stage, parameter.last_stage}) {
    coordinates[static_cast<std::size_t>(Axis::pp)] = shape.rank_of(stage);
    ranks.insert(mesh.rank_of(coordinates));
  }
  return {ranks.begin(), ranks.end()};
}

at::Tensor on_device(const Trainable& trainable) {
  return trainable.gradient_on_host ? nn::brought_to_device(trainable.gradient) : trainable.gradient;
}

void set_gradient(const Trainable& trainable, const at::Tensor& sum) {
  if (trainable.gradient_on_host) {
    nn::copy_to_host(trainable.gradient, sum);
  } else if (!trainable.gradient.is_same(sum)) {
    trainable.gradient.copy_(sum);
  }
}

}  // namespace

PartialGradients::PartialGradients(const std::vector<layout::ParameterLayout>& layouts,
                                   const schedule::Shape& shape, const std::vector<Trainable>& trainables,
                                   comm::Communicator& communicator) {
  for (const layout::ParameterLayout& parameter : layouts) {
    if (!parameter.gradient_reduction_axes.contains(Axis::pp)) {
      continue;
    }
    Shared shared;
    std::copy_if(trainables.begin(), trainables.end(), std::back_inserter(shared.mine),
                 [&](const Trainable& t) { return t.name == parameter.spec.name; });
    if (shared.mine.empty()) {
      continue;
    }
    const auto holders = holders_of(parameter, shape, communicator);
    shared.holders = holders.size() > 1 ? &communicator.subgroup({Axis::pp}, holders) : nullptr;
    shared_.push_back(std::move(shared));
  }
}

void PartialGradients::sum() {
  const at::NoGradGuard no_grad;
  const MemoryScope scope(MemoryCategory::buffers);
  for (const Shared& shared : shared_) {
    const at::Tensor sum = on_device(shared.mine.front());
    for (std::size_t i = 1; i < shared.mine.size(); ++i) {
      sum.add_(on_device(shared.mine[i]));
    }
    if (shared.holders != nullptr) {
      shared.holders->all_reduce({sum}, comm::Reduction::sum, "gradient of " + shared.mine.front().name);
    }
    for (const Trainable& trainable : shared.mine) {
      set_gradient(trainable, sum);
    }
  }
}

}  // namespace ndmesh::parallel
