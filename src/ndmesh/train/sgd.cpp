#include "ndmesh/train/sgd.h"

#include <ATen/Functions.h>

namespace ndmesh::train {

Sgd::Sgd(const job::OptimizerSection& settings, const std::vector<parallel::Trainable>& trainables,
         const StateOptions& options)
    : settings_(settings), state_(trainables, settings.momentum > 0 ? 1 : 0, options) {}

void Sgd::update(double lr, double gradient_factor) {
  state_.for_each_piece(OptimizerState::Changes::value, [&](const StatePiece& piece) {
    const at::Tensor& gradient = piece.gradient.mul_(gradient_factor);
    if (piece.parameter.decayed) {
      gradient.add_(piece.value, settings_.weight_decay);
    }
    if (piece.moments.empty()) {
      piece.value.add_(gradient, -lr);
      return;
    }
    const at::Tensor& momentum = piece.moments.front().mul_(settings_.momentum).add_(gradient);
    piece.value.add_(settings_.nesterov ? gradient.add_(momentum, settings_.momentum) : momentum, -lr);
  });
}

}  // namespace ndmesh::train
