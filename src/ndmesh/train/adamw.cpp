#include "ndmesh/train/adamw.h"

#include <ATen/Functions.h>

#include "ndmesh/base/memory_category.h"

namespace ndmesh::train {

AdamW::AdamW(const job::OptimizerSection& settings, const std::vector<parallel::Trainable>& trainables)
    : settings_(settings) {
  const at::NoGradGuard no_grad;
  const MemoryScope scope(MemoryCategory::optimizer);
  decayed_.weight_decay = settings.weight_decay;
  for (const parallel::Trainable& trainable : trainables) {
    if (trainable.value.numel() == 0) {
      continue;  // this rank owns no row of it
    }
    ParameterList& list = trainable.decayed ? decayed_ : plain_;
    list.values.push_back(trainable.value);
    list.gradients.push_back(trainable.gradient);
    list.first_moments.push_back(at::zeros_like(trainable.value));
    list.second_moments.push_back(at::zeros_like(trainable.value));
  }
}

void AdamW::step(double lr, double gradient_factor) {
  const at::NoGradGuard no_grad;
  steps_ += 1;
  const at::Tensor step = at::full({}, static_cast<double>(steps_), at::kFloat);
  for (ParameterList* list : {&decayed_, &plain_}) {
    if (list->values.empty()) {
      continue;
    }
    if (gradient_factor != 1.0) {  // not the fused kernel's own grad_scale, which is float32 even in float64
      at::_foreach_mul_(list->gradients, gradient_factor);
    }
    const std::vector<at::Tensor> steps(list->values.size(), step);
    at::_fused_adamw_(list->values, list->gradients, list->first_moments, list->second_moments, {}, steps, lr,
                      settings_.beta1, settings_.beta2, list->weight_decay, settings_.eps, /*amsgrad=*/false,
                      /*maximize=*/false, /*grad_scale=*/std::nullopt, /*found_inf=*/std::nullopt);
  }
}

}  // namespace ndmesh::train
