#pragma once

#include <string>

#include "ndmesh/train/trainer.h"

namespace ndmesh::train {

/// An observer that writes every full gradient of the first step, gathered, before clipping, to a safetensors
/// file under Hugging Face names (`debug.gradients`). Empty when `file` is.
Trainer::GradientObserver gradient_writer(const std::string& file, std::int64_t rank);

}  // namespace ndmesh::train
