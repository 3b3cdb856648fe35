#include "ndmesh/train/optimizer_state.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "ndmesh/base/memory_category.h"
#include "ndmesh/nn/host_memory.h"

namespace ndmesh::train {
namespace {

at::Tensor part_of(const at::Tensor& tensor, std::int64_t start, std::int64_t count) {
  return tensor.view({-1}).narrow(0, start, count);
}

}  // namespace

OptimizerState::OptimizerState(const std::vector<parallel::Trainable>& trainables, std::size_t moments,
                               const StateOptions& options)
    : options_(options) {
  const at::NoGradGuard no_grad;
  const MemoryScope scope(MemoryCategory::optimizer);
  const HostMemoryScope place(options.on_host);
  for (const parallel::Trainable& trainable : trainables) {
    if (trainable.value.numel() == 0) {
      continue;  // this rank owns no row of it
    }
    Parameter parameter{trainable, {}};
    const at::ScalarType dtype = options.bfloat16 ? at::kBFloat16 : trainable.value.scalar_type();
    for (std::size_t moment = 0; moment < moments; ++moment) {
      parameter.moments.push_back(at::zeros(trainable.value.sizes(), dtype));
    }
    parameters_.push_back(std::move(parameter));
  }
}

bool OptimizerState::is_on_host(const Parameter& parameter) const {
  const parallel::Trainable& t = parameter.trainable;
  return t.value_on_host || t.gradient_on_host || (options_.on_host && !parameter.moments.empty());
}

void OptimizerState::for_each_piece(Changes changes, const std::function<void(const StatePiece&)>& rule) {
  const at::NoGradGuard no_grad;
  const MemoryScope scope(MemoryCategory::workspace);
  for (const Parameter& parameter : parameters_) {
    const bool on_host = is_on_host(parameter);
    const HostMemoryScope place(on_host);
    const std::int64_t elements = parameter.trainable.value.numel();
    const bool all_there = parameter.trainable.value_on_host && parameter.trainable.gradient_on_host;
    const bool lies_ready = (!on_host || all_there) && !options_.bfloat16;
    const std::int64_t at_a_time = lies_ready ? elements : piece_elements;
    for (std::int64_t start = 0; start < elements; start += at_a_time) {
      const Range range{start, std::min(at_a_time, elements - start)};
      const StatePiece piece = bring(parameter, range, changes);
      rule(piece);
      put_back(parameter, range, piece, changes);
    }
  }
}

StatePiece OptimizerState::bring(const Parameter& parameter, const Range& range, Changes changes) const {
  const parallel::Trainable& t = parameter.trainable;
  StatePiece piece{t, {}, part_of(t.gradient, range.start, range.count), {}};
  if (changes == Changes::value) {
    piece.value = part_of(t.value, range.start, range.count);
  }
  if (is_on_host(parameter)) {
    if (!t.gradient_on_host) {
      piece.gradient = nn::brought_to_host(piece.gradient);
    }
    if (piece.value.defined() && !t.value_on_host) {
      piece.value = nn::brought_to_host(piece.value);
    }
  }
  for (const at::Tensor& moment : parameter.moments) {
    piece.moments.push_back(part_of(moment, range.start, range.count).to(t.value.scalar_type()));
  }
  return piece;
}

void OptimizerState::put_back(const Parameter& parameter, const Range& range, const StatePiece& piece,
                              Changes changes) const {
  const parallel::Trainable& t = parameter.trainable;
  for (std::size_t i = 0; options_.bfloat16 && i < piece.moments.size(); ++i) {
    part_of(parameter.moments[i], range.start, range.count).copy_(piece.moments[i]);
  }
  if (!is_on_host(parameter)) {
    return;
  }
  if (changes == Changes::gradient && !t.gradient_on_host) {
    nn::copy_to_device(part_of(t.gradient, range.start, range.count), piece.gradient);
  } else if (changes == Changes::value && !t.value_on_host) {
    nn::copy_to_device(part_of(t.value, range.start, range.count), piece.value);
  }
}

}  // namespace ndmesh::train
