#include "ndmesh/train/adamw.h"

#include <ATen/Functions.h>

#include <optional>

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
  std::optional<at::Tensor> divisor;
  if (gradient_factor != 1.0) {
    divisor = at::full({}, 1.0 / gradient_factor, at::kDouble);
  }
  for (ParameterList* list : {&decayed_, &plain_}) {
    if (list->values.empty()) {
      continue;
    }
    if (divisor) {
      divisor = divisor->to(list->values.front().scalar_type());
    }
    const std::vector<at::Tensor> steps(list->values.size(), step);
    at::_fused_adamw_(list->values, list->gradients, list->first_moments, list->second_moments, {}, steps, lr,
                      settings_.beta1, settings_.beta2, list->weight_decay, settings_.eps, /*amsgrad=*/false,
                      /*maximize=*/false, divisor, /*found_inf=*/std::nullopt);
  }
}

}  // namespace ndmesh::train
