#include "ndmesh/train/adamw.h"

#include <ATen/Functions.h>

namespace ndmesh::train {

AdamW::AdamW(const job::OptimizerSection& settings, const std::vector<parallel::Trainable>& trainables,
             const StateOptions& options)
    : settings_(settings), state_(trainables, 2, options) {}

void AdamW::update(double lr, double gradient_factor) {
  const at::Tensor step = at::full({}, static_cast<double>(steps()), at::kFloat);
  state_.for_each_piece(OptimizerState::Changes::value, [&](const StatePiece& piece) {
    if (gradient_factor != 1.0) {  // not the fused kernel's own grad_scale, which is float32 even in float64
      piece.gradient.mul_(gradient_factor);
    }
    at::_fused_adamw_(piece.value, piece.gradient, piece.moments[0], piece.moments[1], {}, step, lr,
                      settings_.beta1, settings_.beta2,
                      piece.parameter.decayed ? settings_.weight_decay : 0.0, settings_.eps,
                      /*amsgrad=*/false, /*maximize=*/false, /*grad_scale=*/std::nullopt,
                      /*found_inf=*/std::nullopt);
  });
}

}  // namespace ndmesh::train
