#include "ndmesh/train/muon.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ndmesh/base/error.h"
#include "ndmesh/train/newton_schulz.h"

namespace ndmesh::train {
namespace {

using parallel::Trainable;

/// Those that Muon moves, or all the others.
std::vector<Trainable> chosen(const std::vector<Trainable>& trainables, const MuonOptions& options,
                              bool by_muon) {
  std::vector<Trainable> list;
  for (const Trainable& trainable : trainables) {
    const auto& left = options.by_adamw;
    const bool matrix = trainable.layout.shape().size() == 2 &&
                        std::find(left.begin(), left.end(), trainable.name) == left.end();
    if (matrix == by_muon) {
      list.push_back(trainable);
    }
  }
  return list;
}

const std::vector<Trainable>& on_device(const std::vector<Trainable>& trainables) {
  const auto away = std::find_if(trainables.begin(), trainables.end(),
                                 [](const Trainable& trainable) { return trainable.gradient_on_host; });
  if (away != trainables.end()) {
    throw RunError(
        fmt::format("Muon: the gradient of {} lives in host memory; allowed: gradients on the device "
                    "(offload none, optimizer)",
                    away->name));
  }
  return trainables;
}

/// Of an update whose singular values are 1: then each element has the size of one of AdamW's, about 0.2.
double update_scale(const layout::Shape& shape) {
  return 0.2 * std::sqrt(static_cast<double>(std::max(shape[0], shape[1])));
}

}  // namespace

Muon::Muon(const job::OptimizerSection& settings, const std::vector<Trainable>& trainables,
           const MuonOptions& options, comm::Communicator& communicator)
    : settings_(settings),
      products_(options.products),
      momentum_(chosen(on_device(trainables), options, true), 1, options.states),
      values_(chosen(trainables, options, true), 0, {}),
      exchange_(chosen(trainables, options, true), communicator),
      rest_(settings, chosen(trainables, options, false), options.states) {}

void Muon::update(double lr, double gradient_factor) {
  find_directions(gradient_factor);
  orthogonalise_directions();
  move(lr);
  rest_.step(lr, gradient_factor);
}

void Muon::find_directions(double gradient_factor) {
  momentum_.for_each_piece(OptimizerState::Changes::gradient, [&](const StatePiece& piece) {
    const at::Tensor& gradient = piece.gradient.mul_(gradient_factor);
    const at::Tensor& mean = piece.moments.front().lerp_(gradient, 1 - settings_.momentum);
    if (settings_.nesterov) {
      gradient.lerp_(mean, settings_.momentum);
    } else {
      gradient.copy_(mean);
    }
  });
}

void Muon::orthogonalise_directions() {
  exchange_.transform([&](const at::Tensor& direction) { return orthogonalised(direction.to(products_)); });
}

void Muon::move(double lr) {
  values_.for_each_piece(OptimizerState::Changes::value, [&](const StatePiece& piece) {
    if (piece.parameter.decayed) {
      piece.value.mul_(1 - lr * settings_.weight_decay);
    }
    piece.value.add_(piece.gradient, -lr * update_scale(piece.parameter.layout.shape()));
  });
}

}  // namespace ndmesh::train
